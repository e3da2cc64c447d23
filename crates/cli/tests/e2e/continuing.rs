//! Continuing sessions: `viv run --continue` and `viv sessions send`, without and with a server.

use serde_json::Value;
use testkit::{ProgramOutput, VivFixture};

use crate::fixture::viv_fixture;

/// Runs a command that must succeed.
#[track_caller]
fn good(place: &VivFixture, words: &[&str]) -> ProgramOutput {
    let ran = place.run(words);
    assert_eq!(ran.code, 0, "{words:?}: {}", ran.stderr);
    ran
}

fn sessions(place: &VivFixture) -> Vec<Value> {
    serde_json::from_str(&good(place, &["--json", "sessions", "ls"]).stdout).unwrap()
}

#[test]
fn a_finished_run_is_continued_with_its_changes() {
    let place = viv_fixture();
    good(&place, &["run", "--workspace", "workspace", "--perms", "allow", "mock", "/file one.md"]);
    good(&place, &["run", "--continue", "--perms", "allow", "/file two.md"]);
    let stat = good(&place, &["sessions", "diff", "@last", "--stat"]).stdout;
    assert!(stat.contains("A one.md") && stat.contains("A two.md"), "{stat}");
    let listed = sessions(&place);
    assert_eq!(listed[0]["summary"]["continues"], listed[1]["sessionId"], "{listed:?}");
    assert_eq!(listed[0]["summary"]["prompt"], "/file two.md");

    // Without a server, a message continues the session in the foreground.
    let name = listed[1]["name"].as_str().unwrap();
    let sent = good(&place, &["sessions", "send", name, "hello"]);
    assert!(sent.stdout.contains("You said: hello"), "{sent:?}");
    assert_eq!(sessions(&place)[0]["summary"]["continues"], listed[1]["sessionId"]);
}

#[test]
fn a_session_is_not_continued_under_another_policy() {
    let place = viv_fixture();
    good(&place, &["run", "--workspace", "workspace", "--policy", "strict", "mock", "hello"]);
    let refused = place.run(&["run", "--continue", "--policy", "open", "hello"]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("policy_widening_denied"), "{}", refused.stderr);
    assert_eq!(sessions(&place).len(), 1, "a refused continuation leaves no session");
    good(&place, &["run", "--continue", "--policy", "strict", "hello"]);
}

#[test]
fn an_imported_session_is_neither_continued_nor_the_last() {
    let place = viv_fixture();
    good(&place, &["run", "--workspace", "workspace", "mock", "hello"]);
    good(&place, &["sessions", "export", "@last", "--output", "s.viv"]);
    let original = sessions(&place)[0]["sessionId"].clone();
    good(&place, &["sessions", "import", "s.viv", "--as", "copy"]);
    let shown: Value = serde_json::from_str(&good(&place, &["--json", "sessions", "show", "@last"]).stdout).unwrap();
    assert_eq!(shown["sessionId"], original);
    let refused = place.run(&["run", "--continue", "copy", "hello"]);
    assert!(refused.code != 0 && refused.stderr.contains("imported session is read-only"), "{}", refused.stderr);
}
