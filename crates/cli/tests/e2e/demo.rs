//! Tests of `viv demo`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fixture::viv_fixture;
use crate::terminal::Terminal;
use testkit::{ProgramOutput, VivFixture};

/// Texts of the tour, in this order.
const TOUR: &[&str] = &[
    "session    ",
    "prompt     ",
    "● assistant   I'll write a small script first.",
    "▶ tool        write_file hello.sh",
    "✎ write       hello.sh (+2 -0)",
    "▶ tool        run_command sh hello.sh",
    "? permission  run_command sh hello.sh",
    "✓ allowed     once",
    "│ result      hello from agent in /",
    "▶ tool        fetch http://example.com/",
    "✖ failed      viv: `example.com` port 80 is not allowed",
    "✔ done · 4 model calls · ",
    " tokens in, ",
    " out · $",
    "+echo \"hello from",
    "viv sessions events ",
    "viv sessions diff ",
    "viv exec -- ",
];

/// The proxy records denials on its own, so a denial may come before its tool call, but never after the result.
const DENIAL: &[&str] =
    &["│ result      hello from agent", "⛔ denied      connection to example.com:80", "✖ failed      viv: "];

#[track_caller]
fn check_order(text: &str, expected: &[&str]) {
    let mut rest = text;
    for &part in expected {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => panic!("`{part}` is not where it should be in:\n{text}"),
        }
    }
}

#[track_caller]
fn check_unchanged(place: &VivFixture) {
    let entries = std::fs::read_dir(place.data_dir().join("demo")).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["README.md"], "the demo changed the directory on the host");
}

#[test]
fn the_tour_runs_without_a_terminal() {
    let place = viv_fixture();
    for _ in 0..2 {
        let ProgramOutput { code, stdout, stderr } = place.run(&["demo"]);
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        check_order(&stdout, TOUR);
        check_order(&stdout, DENIAL);
        assert!(!stdout.contains('\u{1b}'), "colours where there is no terminal:\n{stdout}");
        assert!(stdout.lines().all(|line| line == line.trim_end()), "spaces at the end of a line:\n{stdout}");
    }
    check_unchanged(&place);
    // Both sessions are listed as ended.
    let list = place.run(&["sessions", "ls"]).stdout;
    assert_eq!(list.lines().filter(|line| line.contains("\tended\t")).count(), 2, "{list}");
}

#[test]
fn the_suggested_commands_work() {
    let place = viv_fixture();
    let tour = place.run(&["demo"]).stdout;
    let closer = tour.split("Look closer\n").nth(1).unwrap();
    let commands: Vec<&str> = closer.lines().map(|line| line.trim().split("     ").next().unwrap().trim()).collect();
    assert_eq!(commands.len(), 3, "{closer}");
    let columns: BTreeSet<_> = ["all events", "its changes", "a command in"].map(|text| column(closer, text)).into();
    assert_eq!(columns.len(), 1, "their explanations do not stand in one column:\n{closer}");
    for command in commands {
        let line = command.strip_prefix("viv ").unwrap();
        let script = format!("exec \"$0\" --data-dir \"$1\" {line}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, crate::fixture::program()]).arg(place.data_dir()).stdin(std::process::Stdio::null());
        let ran = testkit::run_to_end(shell);
        assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
        assert!(!ran.stdout.is_empty(), "{command} said nothing");
    }
}

/// Returns the column of `text` in its line.
fn column(lines: &str, text: &str) -> usize {
    lines.lines().find_map(|line| line.find(text)).unwrap()
}

#[test]
fn on_a_terminal_the_permission_is_asked() {
    for (answer, follows) in [("y", "✓ allowed     once"), ("n", "✗ refused     run_command")] {
        let place = viv_fixture();
        let mut terminal = Terminal::start(place.command(&["demo"]));
        terminal.until("allow? [y]es once");
        assert!(!terminal.shown.contains("hello from agent"), "the command ran before it was allowed");
        terminal.type_line(answer);
        let (status, shown) = terminal.finish();
        assert_eq!(status.code(), Some(0), "{shown}");
        assert!(shown.contains("\u{1b}["), "no colours on a terminal");
        let plain = without_colours(&shown);
        check_order(
            &plain,
            &["? permission  run_command\n", "$ sh hello.sh\n", "rule: ", "always: ", follows, "✔ done"],
        );
        assert_eq!(plain.contains("hello from agent in /"), answer == "y", "{plain}");
        check_unchanged(&place);
    }
}

#[test]
fn json_output_contains_only_events() {
    let place = viv_fixture();
    let ProgramOutput { code, stdout, stderr } = place.run(&["--json", "demo"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let events: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], *kinds.last().unwrap()), ("policy.effective", "session.ended"));
    for kind in ["permission.resolved", "egress.denied", "llm.call", "workspace.changed", "turn.ended"] {
        assert!(kinds.contains(&kind), "no {kind} in {kinds:?}");
    }
    // The same events as in the journal.
    let kept = place.run(&["--json", "sessions", "events", "@last"]).stdout;
    assert_eq!(kept, stdout);
}

fn without_colours(text: &str) -> String {
    let mut plain = String::new();
    let mut parts = text.split('\u{1b}');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        plain.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    plain.replace('\r', "")
}
