//! Text of agents, clients and imported files never drives the person's terminal.

use serde_json::json;

use crate::fixture::viv_fixture;
use crate::server::Server;
use crate::terminal::Terminal;
use testkit::VivFixture;

/// Clipboard, title, a line that hides its beginning, direction, invisible and concealed text, C1 forms.
const HOSTILE: &str = "MARK\x1b]52;c;cm0gLXJm\x07\x1b]0;title\x07\r\x1b[2Kfake\u{202e}\u{2066}\u{200b}\u{feff}\x1b[8mhidden\u{9b}6n\u{9d}52;c;eA==\u{9c}\x1b[?1049h\x1bc\x7f";
/// Styles of `viv` itself.
const STYLES: [&str; 10] = ["0", "1", "2", "31", "32", "33", "34", "36", "1;31", "1;33"];

/// Checks that the bytes that reached the terminal are text, our styles and line ends only.
#[track_caller]
fn check_safe(what: &str, shown: &str) {
    assert!(shown.contains("MARK"), "{what} does not show the text: {shown:?}");
    // The fixed notification of viv itself.
    let shown = &shown.replace("\x1b]9;viv: an agent waits for your answer\x07\x07", "");
    let mut rest = shown.as_str();
    while let Some(sign) = rest.chars().next() {
        let after = &rest[sign.len_utf8()..];
        rest = match sign {
            '\x1b' => {
                let style =
                    STYLES.iter().find_map(|style| after.strip_prefix('[')?.strip_prefix(*style)?.strip_prefix('m'));
                style.unwrap_or_else(|| panic!("{what} passes an escape sequence: {:?}", &rest[..rest.len().min(20)]))
            }
            // The terminal itself adds the return before each line end.
            '\r' => {
                assert!(after.starts_with(['\n', '\r']), "{what} passes a carriage return: {shown:?}");
                after
            }
            '\n' | '\t' => after,
            sign => {
                assert!(base::is_plain(sign), "{what} passes {sign:?}: {shown:?}");
                after
            }
        };
    }
}

fn on_terminal(place: &VivFixture, arguments: &[&str]) -> String {
    Terminal::start(place.command(arguments)).finish().1
}

#[test]
fn the_run_of_a_hostile_agent_prints_text_only() {
    let place = viv_fixture();
    let run = ["run", "--workspace", "workspace", "--perms", "allow", "mock"];
    for prompt in [format!("/echo {HOSTILE}"), format!("/run echo {HOSTILE}")] {
        let shown = on_terminal(&place, &[&run[..], &[&prompt]].concat());
        check_safe(&prompt, &shown);
        for command in [&["sessions", "events", "@last"][..], &["logs", "@last"], &["--json", "logs", "@last"]] {
            check_safe(&format!("{command:?}"), &on_terminal(&place, command));
        }
    }
}

#[test]
fn json_in_a_pipe_keeps_the_text_exactly() {
    let place = viv_fixture();
    let prompt = format!("/echo {HOSTILE}");
    place.run(&["run", "--workspace", "workspace", "mock", &prompt]);
    let events = place.run(&["--json", "sessions", "events", "@last"]).stdout;
    let texts = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let found = texts.into_iter().any(|event| event["data"]["item"]["content"][0]["text"] == HOSTILE);
    assert!(found, "{events}");
}

#[test]
fn prompts_and_lists_of_requests_show_text_only() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    let create = json!({"agent": "mock", "title": HOSTILE, "model": HOSTILE});
    assert_eq!(client.post("/v1/sessions/s1", &create.to_string()).status, 200);
    let say = |text: &str| {
        let body = json!({"message": text, "whenBusy": "queue"}).to_string();
        assert!(client.post("/v1/sessions/s1/messages", &body).status < 300);
    };
    say(&format!("/run echo {HOSTILE}"));
    testkit::wait_until("the permission is asked for", || place.run(&["perms", "ls"]).stdout.contains("run_command"));
    let listed = place.run(&["perms", "ls"]).stdout;
    assert_eq!(listed.lines().count(), 1, "a request is one line: {listed:?}");
    let id = listed.split('\t').next().unwrap().to_owned();
    for command in
        [&["perms", "ls"][..], &["perms", "show", &id], &["sessions", "show", "s1"], &["--json", "perms", "ls"]]
    {
        check_safe(&format!("{command:?}"), &on_terminal(&place, command));
    }
    let mut terminal = Terminal::start(place.command(&["sessions", "attach", "s1"]));
    terminal.until("[n]o: ");
    check_safe("sessions attach", &terminal.shown);
    terminal.signal(rustix::process::Signal::INT);
    terminal.finish();
    say(&format!("/echo queued {HOSTILE}"));
    check_safe("sessions queue", &on_terminal(&place, &["sessions", "queue", "s1"]));
    server.stop();
}

#[test]
fn an_imported_session_shows_text_only() {
    let (from, to) = (viv_fixture(), viv_fixture());
    let server = Server::start(&from);
    let create = json!({"agent": "mock", "title": HOSTILE, "model": HOSTILE}).to_string();
    assert_eq!(server.client().post("/v1/sessions/s1", &create).status, 200);
    assert_eq!(server.client().post("/v1/sessions/s1/terminate", "").status, 204);
    server.stop();
    let bundle = to.directory().join("bundle");
    let bundle = bundle.to_str().unwrap();
    assert_eq!(from.run(&["sessions", "export", "s1", "--output", bundle]).code, 0);
    check_safe("sessions import", &on_terminal(&to, &["sessions", "import", bundle]));
    check_safe("sessions show", &on_terminal(&to, &["sessions", "show", "s1"]));
    check_safe("sessions show --json", &on_terminal(&to, &["--json", "sessions", "show", "s1"]));
    let refused = on_terminal(&to, &["sessions", "export", "s1", "--output", "-"]);
    assert!(refused.contains("a bundle is not text") && !refused.contains('\0'), "{refused:?}");
}

#[test]
fn a_failed_task_shows_text_only() {
    let place = viv_fixture();
    let script = format!("printf '%s\\n' \"$HOSTILE\"; printf '%s\\n' \"$HOSTILE\" >&2; exit 3 # {HOSTILE}");
    let task = json!({"version": 1, "name": HOSTILE, "env": {"HOSTILE": HOSTILE}, "commands": [{"run": ["sh", "-c", script]}]});
    std::fs::write(place.directory().join("task.yaml"), task.to_string()).unwrap();
    check_safe("task", &on_terminal(&place, &["task", "task.yaml"]));
}

#[test]
fn errors_that_quote_an_argument_show_text_only() {
    let place = viv_fixture();
    for command in [
        &["sessions", "show", HOSTILE][..],
        &["run", HOSTILE, "hi"],
        &["run", "mock", "hi", "--policy", HOSTILE],
        &["exec", "--workspace", HOSTILE, "--", "true"],
        &["exec", "--", HOSTILE],
        &[HOSTILE],
    ] {
        check_safe(&format!("{command:?}"), &on_terminal(&place, command));
    }
}
