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
    assert_ne!(place.run(&["sessions", "diff", "@last"]).code, 0, "deleted changes have no diff");

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
    let ran = run(&place, "--on-finish=apply", "/file .dir-locals.el");
    assert!(
        ran.code != 0 && ran.stderr.contains("apply_conflict") && ran.stderr.contains("deny_write"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("help: viv sessions apply ") && ran.stderr.contains(" --skip-refused"),
        "{}",
        ran.stderr
    );
    check_files(&place, &[KEPT]);
}

#[test]
fn file_that_runs_by_itself_is_applied_only_when_it_is_confirmed() {
    let place = viv_fixture();
    assert_eq!(run(&place, "--on-finish=keep", "/file .envrc").code, 0);
    let stat = place.run(&["sessions", "diff", "@last", "--stat"]).stdout;
    assert!(stat.contains("runs by itself (tool configuration)"), "{stat}");
    let json = place.run(&["--json", "sessions", "diff", "@last"]).stdout;
    assert!(json.contains(r#""class": "runs_by_itself""#), "{json}");
    let refused = place.run(&["sessions", "apply", "@last", "--yes"]);
    assert!(refused.code == 2 && refused.stderr.contains("was not confirmed"), "{}", refused.stderr);
    assert!(refused.stderr.contains("help: viv sessions apply "), "{}", refused.stderr);
    assert!(refused.stderr.contains(" --confirm .envrc"), "{}", refused.stderr);
    let skipped = place.run(&["sessions", "apply", "@last", "--skip-refused", "--yes"]);
    assert_eq!((skipped.code, skipped.stdout.contains("left out `.envrc`: ")), (0, true), "{}", skipped.stdout);
    check_files(&place, &[KEPT]);
    let applied = place.run(&["sessions", "apply", "@last", "--confirm", ".envrc", "--yes"]);
    assert_eq!((applied.code, applied.stdout.as_str()), (0, "A .envrc\n"), "{}", applied.stderr);
    assert!(place.workspace().join(".envrc").exists());
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
    let digest = seen["digest"].as_str().unwrap();
    let missing = client.post("/v1/sessions/one/apply", "{}");
    assert_eq!((missing.status, &missing.json()["code"]), (428, &json!("digest_required")), "{missing:?}");
    let unknown = client.post_matching("/v1/sessions/one/apply", digest, r#"{"paths":["other.md"]}"#);
    assert_eq!((unknown.status, &unknown.json()["code"]), (409, &json!("apply_conflict")), "{unknown:?}");

    // The file was created on the host meanwhile.
    std::fs::write(place.workspace().join("note.md"), "mine\n").unwrap();
    let conflict = client.post_matching("/v1/sessions/one/apply", digest, "{}");
    assert!(conflict.content_type.starts_with("application/problem+json"), "{conflict:?}");
    let refusals = &conflict.json()["refusals"];
    assert_eq!((conflict.status, &refusals[0]["path"]), (409, &json!("note.md")), "{conflict:?}");
    std::fs::remove_file(place.workspace().join("note.md")).unwrap();

    let applied = client.post_matching("/v1/sessions/one/apply", digest, r#"{"paths":["note.md"]}"#);
    assert_eq!((applied.status, &applied.json()["applied"][0]["path"]), (200, &json!("note.md")), "{applied:?}");
    check_files(&place, &[KEPT, NOTE]);

    std::fs::remove_file(place.workspace().join("note.md")).unwrap();
    written(&place, &client, "two");
    assert_eq!(client.post("/v1/sessions/two/terminate", "").status, 204);
    assert_eq!(client.post("/v1/sessions/two/discard", "").status, 204);
    let discarded = client.get("/v1/sessions/two/changes").json();
    assert_eq!((&discarded["set"], &discarded["changes"]), (&json!(0), &json!([])));
    check_files(&place, &[KEPT]);
    server.stop();
}

/// A script of the agent that leaves a process behind. The process waits for a file, and then swaps the content.
const SWAP: &str = "echo harmless > note.md\n\
    (while ! [ -e go ]; do :; done; echo harmful > note.md; echo > gone) > /dev/null 2>&1 < /dev/null &\n";

#[test]
fn content_swapped_after_the_review_does_not_land() {
    let place = viv_fixture();
    std::fs::write(place.workspace().join("swap.sh"), SWAP).unwrap();
    let server = Server::start(&place);
    let client = server.client();
    let body = json!({"agent": "mock", "directory": place.workspace(), "permissionMode": "bypass"});
    assert_eq!(client.post("/v1/sessions/one", &body.to_string()).status, 200);
    let events: Vec<_> = client.converse("one", "/run sh swap.sh").unwrap().map(|frame| frame.json()).collect();
    let changed = events.iter().find(|event| event["type"] == "workspace.changed").unwrap();
    let data = &changed["data"];
    assert_eq!((&data["set"], &data["added"]), (&json!(1), &json!(["note.md"])), "{data}");
    let left = data["left_processes"].as_array().unwrap();
    assert!(left.iter().any(|process| process["command"] == "sh swap.sh"), "{left:?}");

    let seen = client.get("/v1/sessions/one/changes").json();
    let digest = seen["digest"].as_str().unwrap().to_owned();
    assert_eq!(&seen["digest"], &data["digest"]);
    assert!(client.get("/v1/sessions/one/changes?format=diff").body.contains("+harmless"));
    // The left process swaps the content now.
    let go = client.put("/v1/fs/file?session_id=one&path=go", "");
    assert!(go.status < 300, "{go:?}");
    testkit::wait_until("the swap", || client.get("/v1/fs/stat?session_id=one&path=gone").status == 200);
    assert_eq!(client.post("/v1/sessions/one/terminate", "").status, 204);

    let current = client.get("/v1/sessions/one/changes").json();
    assert_eq!(current["set"], json!(2), "{current}");
    let refused = client.post_matching("/v1/sessions/one/apply", &digest, "{}");
    assert_eq!((refused.status, &refused.json()["code"]), (412, &json!("change_set_changed")), "{refused:?}");
    assert!(!place.workspace().join("note.md").exists());
    let applied = client.post_matching("/v1/sessions/one/apply", &digest, r#"{"set": 1}"#);
    assert_eq!(applied.status, 200, "{applied:?}");
    assert_eq!(std::fs::read_to_string(place.workspace().join("note.md")).unwrap(), "harmless\n");
    server.stop();
}

/// Returns the digest of the current set, as `viv sessions sets` prints it.
fn short_digest(place: &VivFixture) -> String {
    let sets = place.run(&["sessions", "sets", "@last"]);
    assert_eq!(sets.code, 0, "{}", sets.stderr);
    sets.stdout.lines().last().unwrap().split('\t').nth(1).unwrap().to_owned()
}

#[test]
fn apply_without_a_terminal_needs_a_digest_or_yes() {
    let place = viv_fixture();
    let ran = run(&place, "--on-finish=keep", "/file note.md");
    assert!(ran.stderr.contains("viv sessions apply"), "{}", ran.stderr);
    let refused = place.run(&["sessions", "apply", "@last"]);
    assert!(refused.code == 2 && refused.stderr.contains("digest_required"), "{}", refused.stderr);
    let digest = short_digest(&place);
    assert!(refused.stderr.contains(&format!("--digest={digest}")), "{}", refused.stderr);
    for other in ["000000000000", &digest[..11]] {
        let refused = place.run(&["sessions", "apply", "@last", "--digest", other]);
        assert!(refused.code == 2 && refused.stderr.contains("change_set_changed"), "{}", refused.stderr);
    }
    check_files(&place, &[KEPT]);
    let applied = place.run(&["sessions", "apply", "@last", "--digest", &digest]);
    assert_eq!((applied.code, applied.stdout.as_str()), (0, "A note.md\n"), "{}", applied.stderr);
    assert!(applied.stderr.contains(&format!("change set 1 · digest {digest}")), "{}", applied.stderr);
    check_files(&place, &[KEPT, NOTE]);
    assert_eq!(place.run(&["sessions", "apply", "@last", "--undo"]).code, 0);
    check_files(&place, &[KEPT]);
    assert_eq!(place.run(&["sessions", "apply", "@last", "--yes"]).code, 0);
    check_files(&place, &[KEPT, NOTE]);
}

#[test]
fn sets_are_listed_shown_and_compared() {
    let place = viv_fixture();
    assert_eq!(run(&place, "--on-finish=apply", "/file note.md").code, 0);
    let sets = place.run(&["sessions", "sets", "@last"]).stdout;
    let rows: Vec<Vec<&str>> = sets.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((rows.len(), rows[0][3], rows[0][5]), (2, "1A", "save"), "{sets}");
    assert_eq!((rows[1][3], rows[1][5]), ("0", "apply"), "{sets}");
    assert!(place.run(&["sessions", "diff", "@last", "--set", "1"]).stdout.contains("note.md"));
    let differences = place.run(&["sessions", "diff", "@last", "--set", "1", "--against", "2"]).stdout;
    assert_eq!(differences, "A note.md\n1 path differs between set 2 and set 1\n");
    let missing = place.run(&["sessions", "diff", "@last", "--set", "9"]);
    assert!(missing.code == 3 && missing.stderr.contains("change_set_not_found"), "{}", missing.stderr);
    let json = place.run(&["--json", "sessions", "sets", "@last"]).stdout;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()[0]["number"], 1, "{json}");
}

#[test]
fn apply_on_a_terminal_shows_the_set_and_asks() {
    let place = viv_fixture();
    assert_eq!(run(&place, "--on-finish=keep", "/file note.md").code, 0);
    for (answers, files) in [(&["n"][..], &[KEPT][..]), (&["what", "d", "y"], &[KEPT, NOTE])] {
        let mut terminal = Terminal::start(place.command(&["sessions", "apply", "@last"]));
        for answer in answers {
            terminal.until("[d]iff: ");
            terminal.shown = terminal.shown.replace("[d]iff: ", "[d]iff? ");
            terminal.type_line(answer);
        }
        let (status, shown) = terminal.finish();
        assert_eq!(status.code(), Some(0), "{shown}");
        assert!(shown.contains("change set 1 · digest ") && shown.contains("A note.md"), "{shown}");
        assert_eq!(shown.contains("+# Note"), answers.contains(&"d"), "{shown}");
        check_files(&place, files);
    }
}

/// A script of the agent that writes many files, so that saving them takes a while.
const MANY: &str = "i=0\nwhile [ $i -lt 1500 ]; do echo $i > many-$i; i=$((i+1)); done\n";

#[test]
fn save_that_is_killed_keeps_the_earlier_set() {
    let place = viv_fixture();
    std::fs::write(place.workspace().join("many.sh"), MANY).unwrap();
    let server = Server::start(&place);
    let client = server.client();
    written(&place, &client, "one");
    let shown = client.get("/v1/sessions/one/changes").json();
    let marker = place.data_dir().join("changes/one/saving");
    assert!(!marker.exists());
    std::thread::scope(|scope| {
        // The stream breaks when the server is killed.
        scope.spawn(|| client.converse("one", "/run sh many.sh").map(|frames| frames.for_each(drop)));
        testkit::wait_until("the save", || marker.exists());
        server.kill(&place.data_dir());
    });
    let server = Server::start(&place);
    let client = server.client();
    let kept = client.get("/v1/sessions/one/changes?set=1").json();
    assert_eq!((&kept["digest"], &kept["changes"]), (&shown["digest"], &shown["changes"]), "{kept}");
    let current = client.get("/v1/sessions/one/changes").json();
    assert!(current["set"] == 1 || current["set"] == 2, "{current}");
    assert!(client.get("/v1/sessions/one/changes?format=diff").body.contains("+second"));
    server.stop();
}
