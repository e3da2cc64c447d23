//! Tests of permission prompts on a terminal: everything that is approved is visible, and only deliberate keys answer.

use serde_json::Value;

use crate::fixture::viv_fixture;
use crate::journal;
use crate::terminal::Terminal;
use testkit::VivFixture;

/// The end of the prompt, after which keys count.
const PROMPT: &str = "[n]o: ";

fn start(place: &VivFixture, prompt: &str) -> Terminal {
    Terminal::start(place.command(&["run", "--workspace", "workspace", "mock", prompt]))
}

/// Returns the text on the terminal without styles, line ends and spaces, which wrapping adds.
fn joined(shown: &str) -> String {
    let plain = shown
        .split('\x1b')
        .map(|part| part.strip_prefix('[').and_then(|rest| rest.split_once('m')).map_or(part, |(_, rest)| rest));
    plain.collect::<String>().split_whitespace().collect()
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
    terminal.until(PROMPT);
    terminal.type_line("n");
    let (_, shown) = terminal.finish();
    assert_eq!(resolved(&place)[0]["status"], "reject", "{shown}");
}

#[test]
fn a_deliberate_answer_allows_the_command() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/run echo allowed");
    terminal.until(PROMPT);
    terminal.type_line("y");
    let (status, shown) = terminal.finish();
    assert_eq!((status.code(), &resolved(&place)[0]["status"]), (Some(0), &Value::from("accept")), "{shown}");
}

#[test]
fn the_whole_command_its_rule_and_the_scope_of_always_are_shown() {
    let place = viv_fixture();
    let command = format!("echo {} rm -rf ./HIDDEN", "x".repeat(700));
    let mut terminal = start(&place, &format!("/run {command}"));
    terminal.until(PROMPT);
    let shown = joined(&terminal.shown);
    assert!(shown.contains(&joined(&format!("$ {command}"))), "{}", terminal.shown);
    assert!(shown.contains("rule:theagentasks;noruleofthepolicydecides"), "{}", terminal.shown);
    assert!(shown.contains("always:exactlythiscommandbyrun_command,untilthesessionends"), "{}", terminal.shown);
    terminal.type_line("n");
    terminal.finish();
}

#[test]
fn the_policy_rule_that_asks_is_named_with_its_line() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/run git push origin");
    terminal.until(PROMPT);
    assert!(joined(&terminal.shown).contains("rule:tools.ask"), "{}", terminal.shown);
    terminal.type_line("n");
    terminal.finish();
}

#[test]
fn an_edit_is_shown_as_a_diff() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/file /tmp/outside.md");
    terminal.until(PROMPT);
    let request = &journal::of_kind(&place, "permission.requested")[0];
    let content = request["metadata"]["input"]["content"].as_str().unwrap();
    let first = content.lines().next().unwrap();
    assert!(terminal.shown.contains("/tmp/outside.md"), "{}", terminal.shown);
    assert!(terminal.shown.contains(&format!("+{first}")), "{}", terminal.shown);
    assert!(joined(&terminal.shown).contains("always:everychangeof`/tmp/outside.md`"), "{}", terminal.shown);

    // The agent asks again before it edits the file.
    terminal.shown.clear();
    terminal.type_line("n");
    terminal.until("edit_file");
    terminal.until(PROMPT);
    let request = &journal::of_kind(&place, "permission.requested")[1];
    for (sign, name) in [('-', "old"), ('+', "new")] {
        let text = request["metadata"]["input"][name].as_str().unwrap().lines().next().unwrap().to_owned();
        assert!(terminal.shown.contains(&format!("{sign}{text}")), "{}", terminal.shown);
    }
    terminal.type_line("n");
    terminal.finish();
}

#[test]
fn a_long_request_is_viewed_before_it_is_allowed() {
    let place = viv_fixture();
    let command = format!("echo {} HIDDEN", "x".repeat(3000));
    let mut terminal = start(&place, &format!("/run {command}"));
    // Each prompt ends with a reset of its colour.
    terminal.until(": \x1b[0m");
    assert!(terminal.shown.contains("more lines, [v]iew") && !terminal.shown.contains("rule: "), "{}", terminal.shown);
    let mut seen = std::mem::take(&mut terminal.shown);
    terminal.type_line("y");
    terminal.until("lines are not shown yet");
    terminal.until(": \x1b[0m");
    assert!(resolved(&place).is_empty(), "{}", terminal.shown);
    for _ in 0..10 {
        if terminal.shown.contains(PROMPT) {
            break;
        }
        seen.push_str(&std::mem::take(&mut terminal.shown));
        terminal.type_line("v");
        terminal.until(": \x1b[0m");
    }
    terminal.type_line("y");
    let (status, shown) = terminal.finish();
    seen.push_str(&shown);
    assert_eq!((status.code(), &resolved(&place)[0]["status"]), (Some(0), &Value::from("accept")), "{seen}");
    assert!(seen.contains("HIDDEN") && seen.contains("rule: "), "{seen}");
}

#[test]
fn an_answer_that_is_not_understood_asks_again() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/run echo allowed");
    terminal.until(PROMPT);
    for unknown in ["what?", "", "yy"] {
        terminal.shown.clear();
        terminal.type_line(unknown);
        terminal.until("not understood; answer y, a, n or v");
        terminal.until(PROMPT);
        assert!(resolved(&place).is_empty(), "`{unknown}` answered the request");
    }
    terminal.type_line("Y");
    let (status, shown) = terminal.finish();
    assert_eq!((status.code(), &resolved(&place)[0]["status"]), (Some(0), &Value::from("accept")), "{shown}");
}

#[test]
fn the_end_of_input_denies() {
    let place = viv_fixture();
    let mut terminal = start(&place, "/run echo allowed");
    terminal.until(PROMPT);
    terminal.type_keys(b"\x04");
    let (_, shown) = terminal.finish();
    assert_eq!(resolved(&place)[0]["status"], "reject", "{shown}");
}

#[test]
fn an_answer_given_elsewhere_ends_the_prompt_and_the_run_goes_on() {
    for (command, line, outcome) in
        [("allow", "answered elsewhere: allowed once", "accept"), ("deny", "answered elsewhere: denied", "reject")]
    {
        let place = viv_fixture();
        let mut terminal = start(&place, "/run echo allowed");
        terminal.until(PROMPT);
        let listed = place.run(&["perms", "ls"]).stdout;
        let id = listed.split('\t').next().unwrap().to_owned();
        let shown = place.run(&["perms", "show", &id]).stdout;
        assert!(shown.starts_with("run_command\n$ echo allowed\nrule: ") && shown.contains("\nalways: "), "{shown}");
        assert_eq!(place.run(&["perms", command, &id]).code, 0);
        terminal.until(line);
        let (status, shown) = terminal.finish();
        assert_eq!(status.code(), Some(0), "{shown}");
        assert!(shown.contains("model call") && shown.contains("viv sessions diff"), "{shown}");
        assert_eq!(resolved(&place)[0]["status"], outcome, "{shown}");
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
