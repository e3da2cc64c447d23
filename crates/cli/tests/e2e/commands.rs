//! Commands on sessions of other processes: messages, answers, logs, files, tokens.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::fixture::viv_fixture;
use crate::server::Server;
use testkit::{ProgramOutput, VivFixture};

#[track_caller]
fn good(ran: ProgramOutput) -> String {
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

fn session(place: &VivFixture, id: &str) {
    let path = format!("/v1/sessions/{id}");
    good(place.run(&["api", "POST", &path, "--data", r#"{"agent":"mock"}"#]));
}

#[test]
fn events_of_an_open_session_are_shown_live() {
    let place = viv_fixture();
    let _server = Server::start(&place);
    session(&place, "s1");
    let mut stream = place.command(&["api", "GET", "/v1/sessions/s1/events/sse?events=all"]);
    let mut stream = stream.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(stream.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "event: session.started"), "the stream was not shown while it ran");
    // The turn is still open, and the index updates the event count only at its end.
    good(place.run(&["sessions", "send", "s1", "/run echo hello"]));
    assert!(lines.any(|line| line == "event: permission.requested"));
    let listed: Value = serde_json::from_str(&good(place.run(&["--json", "sessions", "ls"]))).unwrap();
    let shown: Value = serde_json::from_str(&good(place.run(&["api", "GET", "/v1/sessions/s1"]))).unwrap();
    assert_eq!(listed[0]["eventCount"], shown["eventCount"], "{listed}");
    good(place.run(&["sessions", "stop", "s1"]));
    assert!(stream.wait().unwrap().success(), "the stream did not end with its session");
    assert_eq!(place.run(&["api", "GET", "/v1/sessions/a b"]).code, 2);
    assert_eq!(place.run(&["tokens", "revoke", "nobody"]).code, 3);
}

#[test]
fn requests_are_answered_from_another_terminal() {
    let place = viv_fixture();
    let _server = Server::start(&place);
    session(&place, "s1");
    good(place.run(&["sessions", "send", "s1", "/run echo hello"]));
    let mut waiting = String::new();
    testkit::wait_until("a permission that waits", || {
        waiting = good(place.run(&["perms", "ls"]));
        !waiting.is_empty()
    });
    assert!(waiting.starts_with("s1/per_") && waiting.contains("run_command"), "{waiting}");
    let id = waiting.split('\t').next().unwrap();
    assert_eq!(
        place.run(&["perms", "answer", id, "yes"]).code,
        2,
        "a permission request cannot be answered like a question"
    );
    good(place.run(&["perms", "allow", id, "--always"]));
    assert_eq!(place.run(&["perms", "allow", id]).code, 2, "it was answered before");
    let turn_ended = || good(place.run(&["logs", "s1", "--kind", "turn", "--json"])).lines().count() == 2;
    testkit::wait_until("the end of the turn", turn_ended);
    let grants: Value = serde_json::from_str(&good(place.run(&["api", "GET", "/v1/sessions/s1/grants"]))).unwrap();
    assert_eq!(grants["grants"].as_array().unwrap().len(), 1);
    for line in good(place.run(&["logs", "@last", "--kind", "permission", "--json"])).lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(event["type"].as_str().unwrap().starts_with("permission."));
    }
}

#[test]
fn a_session_is_forked_exported_removed_and_imported_again() {
    let place = viv_fixture();
    let server = Server::start(&place);
    session(&place, "s1");
    let forked = good(place.run(&["sessions", "fork", "s1", "--title", "Another way"]));
    assert!(good(place.run(&["sessions", "show", forked.trim()])).contains("Another way"));
    good(place.run(&["sessions", "export", "s1", "--output", "s1.tar"]));
    good(place.run(&["sessions", "rm", "--yes", "s1", forked.trim()]));
    assert_eq!(place.run(&["sessions", "show", "s1"]).code, 3);
    server.stop();
    // The same works without a server; a used id is never reused.
    let refused = place.run(&["sessions", "import", "s1.tar"]);
    assert!(refused.code == 2 && refused.stderr.contains("session_already_exists"), "{refused:?}");
    good(place.run(&["sessions", "import", "s1.tar", "--as", "s1-again"]));
    assert!(good(place.run(&["sessions", "events", "s1-again"])).contains("session"));
    let other = viv_fixture();
    let bundle = place.workspace().parent().unwrap().join("s1.tar");
    let taken = good(other.run(&["sessions", "import", bundle.to_str().unwrap()]));
    assert!(taken.contains("ended"), "{taken}");
    assert!(good(other.run(&["sessions", "events", "s1"])).contains("session"));
    let sent = other.run(&["sessions", "send", "s1", "hello"]);
    assert_eq!(sent.code, 2, "{sent:?}");
}

#[test]
fn tokens_are_invalid_at_the_gateway_and_keys_at_the_api() {
    let place = viv_fixture();
    let made = |arguments: &[&str], field: &str| {
        let told: Value = serde_json::from_str(&good(place.run(arguments))).unwrap();
        (told["id"].as_str().unwrap().to_owned(), told[field].as_str().unwrap().to_owned())
    };
    let (token_id, token) = made(&["--json", "tokens", "create", "--scope", "read"], "token");
    let (_, key) = made(&["--json", "keys", "create", "--account", "a"], "key");
    let kept = std::fs::read(place.data_dir().join("viv.db")).unwrap();
    assert!(!String::from_utf8_lossy(&kept).contains(&token), "the token itself is kept");
    let (api, gateway) = (Server::start_as(&place, &["serve"]), Server::start_as(&place, &["gateway", "serve"]));
    assert_eq!(api.client().status_with("/v1/sessions", &token), 200);
    assert_eq!(api.client().status_with("/v1/sessions", &key), 401);
    assert_eq!(gateway.client().status_with("/v1/models", &key), 200);
    let refused = gateway.client().status_with("/v1/models", &token);
    assert!(matches!(refused, 401 | 403), "the gateway answered {refused} to a token of the API");
    good(place.run(&["tokens", "revoke", &token_id]));
    assert_eq!(api.client().status_with("/v1/sessions", &token), 401, "a revoked token opened something");
    assert!(good(place.run(&["tokens", "ls"])).contains("revoked"));
}
