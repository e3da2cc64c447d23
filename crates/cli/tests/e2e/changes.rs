//! Changes of a session: `viv run --on-finish`, and the HTTP API.

use serde_json::json;

use crate::fixture::viv_fixture;
use crate::http::Client;
use crate::server::Server;
use crate::terminal::Terminal;
use testkit::VivFixture;

const KEPT: (&str, &str) = ("kept.txt", "as it was\n");
const NOTE: (&str, &str) = ("note.md", "# Note\n\nsecond\n");

#[track_caller]
fn check_files(place: &VivFixture, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    assert_eq!(place.workspace_files(), expected);
}

/// Runs a turn that writes a note.
fn run(place: &VivFixture, wish: &str, prompt: &str) -> testkit::ProgramOutput {
    place.run(&["run", "--workspace", "workspace", "--perms", "allow", wish, "mock", prompt])
}

#[test]
fn changes_are_kept_by_default() {
    let place = viv_fixture();
    let ran = run(&place, "--on-finish=keep", "/file note.md");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    check_files(&place, &[KEPT]);
    assert!(place.run(&["sessions", "diff", "@last", "--stat"]).stdout.contains("note.md"));

    let ran = run(&place, "--on-finish=discard", "/file note.md");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    check_files(&place, &[KEPT]);
    assert_ne!(place.run(&["sessions", "diff", "@last"]).code, 0, "there is nothing to see any more");

    let ran = run(&place, "--on-finish=apply", "/file note.md");
    assert_eq!((ran.code, ran.stderr.contains("A note.md\n")), (0, true), "{}", ran.stderr);
    check_files(&place, &[KEPT, NOTE]);
}

#[test]
fn changes_of_an_imported_session_can_be_viewed() {
    let (place, other) = (viv_fixture(), viv_fixture());
    assert_eq!(run(&place, "--on-finish=keep", "/file note.md").code, 0);
    assert_eq!(place.run(&["sessions", "export", "@last", "--output", "s.tar"]).code, 0);
    let bundle = place.workspace().parent().unwrap().join("s.tar");
    let taken = other.run(&["sessions", "import", bundle.to_str().unwrap(), "--as", "copy"]);
    assert_eq!(taken.code, 0, "{}", taken.stderr);
    for form in [&["sessions", "diff"][..], &["sessions", "diff", "--stat"]] {
        let (here, there) = (place.run(&[form, &["@last"]].concat()), other.run(&[form, &["copy"]].concat()));
        assert_eq!((there.code, &there.stdout), (0, &here.stdout), "{}", there.stderr);
        assert!(there.stdout.contains("note.md"), "{}", there.stdout);
    }
    let refused = other.run(&["sessions", "apply", "copy"]);
    assert!(refused.code == 2 && refused.stderr.contains("was imported"), "{}", refused.stderr);
    check_files(&other, &[KEPT]);
    assert_eq!(other.run(&["sessions", "discard", "copy"]).code, 0);
    assert!(!other.run(&["sessions", "diff", "copy"]).stdout.contains("note.md"));
}

#[test]
fn changes_of_a_failed_turn_are_not_applied() {
    let place = viv_fixture();
    let ran = run(&place, "--on-finish=apply", "/crash");
    assert_ne!(ran.code, 0, "{}", ran.stderr);
    check_files(&place, &[KEPT]);
}

#[test]
fn changes_that_the_policy_denies_are_not_applied() {
    let place = viv_fixture();
    let ran = run(&place, "--on-finish=apply", "/file .envrc");
    assert!(
        ran.code != 0 && ran.stderr.contains("apply_conflict") && ran.stderr.contains("deny_write"),
        "{}",
        ran.stderr
    );
    check_files(&place, &[KEPT]);
}

#[test]
fn on_finish_ask_needs_a_terminal() {
    let place = viv_fixture();
    let ran = run(&place, "--on-finish=ask", "/file note.md");
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("needs a terminal") && ran.stderr.contains("help: "), "{}", ran.stderr);
    assert_eq!(place.run(&["--json", "sessions", "ls"]).stdout.trim(), "[]", "nothing was begun");
    for (answer, files) in [("k", &[KEPT][..]), ("d", &[KEPT]), ("a", &[KEPT, NOTE])] {
        let arguments =
            ["run", "--workspace", "workspace", "--perms", "allow", "--on-finish=ask", "mock", "/file note.md"];
        let mut terminal = Terminal::start(place.command(&arguments));
        terminal.until("[k]eep: ");
        assert!(terminal.shown.contains("note.md"), "{}", terminal.shown);
        terminal.type_line(answer);
        let (status, shown) = terminal.finish();
        assert_eq!(status.code(), Some(0), "{shown}");
        check_files(&place, files);
    }
}

/// Runs a session over HTTP that writes a note, and ends it.
fn written(place: &VivFixture, client: &Client, id: &str) {
    let body = json!({"agent": "mock", "directory": place.workspace(), "permissionMode": "bypass"});
    let made = client.post(&format!("/v1/sessions/{id}"), &body.to_string());
    assert_eq!(made.status, 200, "{made:?}");
    client.converse(id, "/file note.md").unwrap().for_each(drop);
}

#[test]
fn changes_are_seen_applied_and_discarded_over_http() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    written(&place, &client, "one");
    let seen = client.get("/v1/sessions/one/changes").json();
    assert_eq!(
        (&seen["changes"][0]["path"], &seen["changes"][0]["kind"]),
        (&json!("note.md"), &json!("added")),
        "{seen}"
    );
    let patch = client.get("/v1/sessions/one/changes?format=diff");
    assert!(patch.content_type.starts_with("text/x-diff") && patch.body.contains("+second"), "{patch:?}");
    assert!(client.get("/v1/sessions/one/changes?format=stat").body.contains("note.md"));

    let early = client.post("/v1/sessions/one/apply", "{}");
    assert_eq!((early.status, &early.json()["code"]), (409, &json!("session_open")));
    assert_eq!(client.post("/v1/sessions/one/terminate", "").status, 204);
    let unknown = client.post("/v1/sessions/one/apply", r#"{"paths":["other.md"]}"#);
    assert_eq!((unknown.status, &unknown.json()["code"]), (409, &json!("apply_conflict")), "{unknown:?}");

    // The file was created on the host meanwhile.
    std::fs::write(place.workspace().join("note.md"), "mine\n").unwrap();
    let conflict = client.post("/v1/sessions/one/apply", "{}");
    assert!(conflict.content_type.starts_with("application/problem+json"), "{conflict:?}");
    let refusals = &conflict.json()["refusals"];
    assert_eq!((conflict.status, &refusals[0]["path"]), (409, &json!("note.md")), "{conflict:?}");
    std::fs::remove_file(place.workspace().join("note.md")).unwrap();

    let applied = client.post("/v1/sessions/one/apply", r#"{"paths":["note.md"]}"#);
    assert_eq!((applied.status, &applied.json()["applied"][0]["path"]), (200, &json!("note.md")), "{applied:?}");
    check_files(&place, &[KEPT, NOTE]);

    std::fs::remove_file(place.workspace().join("note.md")).unwrap();
    written(&place, &client, "two");
    assert_eq!(client.post("/v1/sessions/two/terminate", "").status, 204);
    assert_eq!(client.post("/v1/sessions/two/discard", "").status, 204);
    assert_eq!(client.get("/v1/sessions/two/changes").json(), json!({"changes": []}));
    check_files(&place, &[KEPT]);
    server.stop();
}
