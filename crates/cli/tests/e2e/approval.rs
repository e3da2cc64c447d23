//! Tests of permission prompts on a terminal: everything that is approved is visible, and only deliberate keys answer.
//!
//! They look at the screen of a terminal emulator, so that text counts only where a person sees it.

use serde_json::Value;

use crate::fixture::viv_fixture;
use crate::journal;
use crate::terminal::Terminal;
use testkit::VivFixture;

/// The end of the prompt, after which keys count.
const PROMPT: &str = "[n]o:";

/// Returns whether the last line asks for an answer.
fn asks(screen: &str) -> bool {
    let last = screen.lines().last().unwrap_or_default();
    let is_whole = last.ends_with(PROMPT)
        || last.rsplit_once("always ").is_some_and(|(_, count)| count.trim_end_matches(':').parse::<u32>().is_ok());
    last.contains("allow?") && is_whole && last.ends_with(':')
}

fn start(place: &VivFixture, prompt: &str) -> Terminal {
    Terminal::start(place.command(&["run", "--workspace", "workspace", "mock", prompt]))
}

/// Returns text without line ends and spaces, which the view adds where it cuts a long line.
fn joined(shown: &str) -> String {
    shown.split_whitespace().collect()
}

fn resolved(place: &VivFixture) -> Vec<Value> {
    journal::of_kind(place, "permission.resolved")
}

#[test]
fn keys_typed_before_the_prompt_do_not_answer_it() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/run touch made");
    terminal.type_line("y");
    terminal.type_keys(b"y");
    terminal.until_screen(asks);
    terminal.type_line("n");
    let (_, shown) = terminal.finish_on_screen();
    assert_eq!(resolved(&place)[0]["status"], "reject", "{shown}");
}

#[test]
fn a_deliberate_answer_allows_the_command() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/run echo allowed");
    terminal.until_screen(asks);
    terminal.type_line("y");
    let (status, shown) = terminal.finish_on_screen();
    assert_eq!((status.code(), &resolved(&place)[0]["status"]), (Some(0), &Value::from("accept")), "{shown}");
}

#[test]
fn the_whole_command_its_rule_and_the_scope_of_always_are_shown() {
    let place = viv_fixture();
    let command = format!("echo {} rm -rf ./HIDDEN", "x".repeat(700));
    let mut terminal = start(&place, &format!("/run {command}"));
    terminal.until_screen(asks);
    let shown = joined(&terminal.screen());
    assert!(shown.contains(&joined(&format!("$ {command}"))), "{}", terminal.screen());
    assert!(shown.contains("rule:theagentasks;noruleofthepolicydecides"), "{}", terminal.screen());
    assert!(shown.contains("always:exactlythiscommandbyrun_command,untilthesessionends"), "{}", terminal.screen());
    terminal.type_line("n");
    terminal.finish_on_screen();
}

#[test]
fn the_policy_rule_that_asks_is_named_with_its_line() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/run git push origin");
    terminal.until_screen(asks);
    assert!(joined(&terminal.screen()).contains("rule:tools.ask"), "{}", terminal.screen());
    terminal.type_line("n");
    terminal.finish_on_screen();
}

#[test]
fn an_edit_is_shown_as_a_diff() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/file /tmp/outside.md");
    terminal.until_screen(asks);
    let request = &journal::of_kind(&place, "permission.requested")[0];
    let content = request["metadata"]["input"]["content"].as_str().unwrap();
    let first = content.lines().next().unwrap();
    assert!(terminal.screen().contains("/tmp/outside.md"), "{}", terminal.screen());
    assert!(terminal.screen().contains(&format!("+{first}")), "{}", terminal.screen());
    assert!(joined(&terminal.screen()).contains("always:everychangeof`/tmp/outside.md`"), "{}", terminal.screen());

    // The agent asks again before it edits the file.
    terminal.clear();
    terminal.type_line("n");
    terminal.until_screen(|screen| screen.contains("edit_file"));
    terminal.until_screen(asks);
    let request = &journal::of_kind(&place, "permission.requested")[1];
    for (sign, name) in [('-', "old"), ('+', "new")] {
        let text = request["metadata"]["input"][name].as_str().unwrap().lines().next().unwrap().to_owned();
        assert!(terminal.screen().contains(&format!("{sign}{text}")), "{}", terminal.screen());
    }
    terminal.type_line("n");
    terminal.finish_on_screen();
}

#[test]
fn a_long_request_is_viewed_before_it_is_allowed() {
    let place = viv_fixture();
    let command = format!("echo {} HIDDEN", "x".repeat(3000));
    let mut terminal = start(&place, &format!("/run {command}"));
    terminal.until_screen(asks);
    let first = terminal.screen();
    assert!(first.contains("more lines, [v]iew") && !first.contains("rule: "), "{first}");
    let mut seen = first;
    terminal.clear();
    terminal.type_line("y");
    terminal.until_screen(|screen| screen.contains("lines are not shown yet") && asks(screen));
    assert!(resolved(&place).is_empty(), "{}", terminal.screen());
    for _ in 0..10 {
        if terminal.screen().ends_with(PROMPT) {
            break;
        }
        seen.push_str(&terminal.screen());
        terminal.clear();
        terminal.type_line("v");
        terminal.until_screen(asks);
    }
    terminal.type_line("y");
    let (status, shown) = terminal.finish_on_screen();
    seen.push_str(&shown);
    assert_eq!((status.code(), &resolved(&place)[0]["status"]), (Some(0), &Value::from("accept")), "{seen}");
    assert!(seen.contains("HIDDEN") && seen.contains("rule: "), "{seen}");
}

#[test]
fn an_answer_that_is_not_understood_asks_again() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/run echo allowed");
    terminal.until_screen(asks);
    for unknown in ["what?", "", "yy"] {
        terminal.clear();
        terminal.type_line(unknown);
        terminal.until_screen(|screen| screen.contains("not understood; answer y, a, n or v") && asks(screen));
        assert!(resolved(&place).is_empty(), "`{unknown}` answered the request");
    }
    terminal.type_line("Y");
    let (status, shown) = terminal.finish_on_screen();
    assert_eq!((status.code(), &resolved(&place)[0]["status"]), (Some(0), &Value::from("accept")), "{shown}");
}

#[test]
fn the_end_of_input_denies() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/run echo allowed");
    terminal.until_screen(asks);
    terminal.type_keys(b"\x04");
    let (_, shown) = terminal.finish_on_screen();
    assert_eq!(resolved(&place)[0]["status"], "reject", "{shown}");
}

#[test]
fn an_answer_given_elsewhere_ends_the_prompt_and_the_run_goes_on() {
    for (command, line, outcome) in [("allow", "allowed once", "accept"), ("deny", "denied", "reject")] {
        let line = format!("answered elsewhere by a program of the same user: {line}");
        let place = viv_fixture();
        let mut terminal = start(&place, "/run echo allowed");
        terminal.until_screen(asks);
        let listed = place.run(&["perms", "ls"]).stdout;
        let id = listed.split('\t').next().unwrap().to_owned();
        let shown = place.run(&["perms", "show", &id]).stdout;
        assert!(shown.starts_with("run_command\n$ echo allowed\nrule: ") && shown.contains("\nalways: "), "{shown}");
        assert_eq!(place.run(&["perms", command, &id]).code, 0);
        terminal.until_screen(|screen| joined(screen).contains(&joined(&line)));
        let (status, shown) = terminal.finish_on_screen();
        assert_eq!(status.code(), Some(0), "{shown}");
        assert!(shown.contains("model call") && shown.contains("viv sessions diff"), "{shown}");
        let resolved = &resolved(&place)[0];
        assert_eq!(resolved["status"], outcome, "{shown}");
        assert_eq!(resolved["metadata"]["answered_by"], "a program of the same user", "{shown}");
    }
}

#[test]
fn without_a_terminal_requests_are_denied_with_a_reason_and_an_exit_code() {
    let place = viv_fixture();
    let run =
        |perms: &[&str]| place.run(&[&["run", "--workspace", "workspace", "mock", "/run echo hi"], perms].concat());
    let denied = run(&[]);
    assert_eq!(denied.code, 10, "{denied:?}");
    assert!(denied.stderr.contains("denied: no terminal to ask on"), "{}", denied.stderr);
    let last = denied.stderr.lines().last().unwrap();
    assert_eq!(last, "help: viv run mock '/run echo hi' --perms=allow");
    assert_eq!(run(&["--perms=allow"]).code, 0);
    assert_eq!(run(&["--perms=deny"]).code, 0, "the denial is intended");
}

#[test]
fn the_terminal_is_notified_when_an_agent_waits_unless_that_is_turned_off() {
    let place = viv_fixture();
    let notified = |place: &VivFixture| {
        let mut terminal = start(place, "/run echo allowed");
        terminal.until(PROMPT);
        let shown = terminal.shown.clone();
        terminal.type_line("n");
        terminal.finish();
        (shown.contains("\x1b]9;viv: an agent waits for your answer\x07"), shown.contains('\x07'))
    };
    assert_eq!(notified(&place), (true, true));
    for (mode, expected) in [("bell", (false, true)), ("none", (false, false))] {
        assert_eq!(place.run(&["config", "set", "terminal.notify", mode]).code, 0);
        assert_eq!(notified(&place), expected, "{mode}");
    }
}

#[test]
fn top_shows_waiting_sessions_live_and_restores_the_terminal() {
    let place = viv_fixture();
    let refused = place.run(&["top"]);
    assert!(refused.code == 10 && refused.stderr.ends_with("help: viv sessions ls\n"), "{refused:?}");
    let mut top = Terminal::start(place.command(&["top", "--interval", "100ms"]));
    top.until("0 running · 0 waiting · 0 idle");
    let mut session = start(&place, "/run echo allowed");
    session.until(PROMPT);
    top.until("1 waiting");
    top.until("/run echo allowed");
    assert!(!top.is_cooked());
    session.type_line("n");
    session.finish();
    top.shown.clear();
    top.until("0 running · 0 waiting · 0 idle");
    top.type_keys(b"q");
    let (status, cooked, shown) = top.finish_and_look();
    assert!(status.success() && cooked && shown.contains("\x1b[?1049l"), "{shown}");
    assert!(!shown.contains("^["), "a style is shown as text: {shown}");
}
