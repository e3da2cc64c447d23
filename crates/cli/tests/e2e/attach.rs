//! Tests of `viv sessions attach` on a terminal.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use crate::fixture::viv_fixture;
use crate::http::Client;
use crate::server::Server;
use crate::terminal::Terminal;

fn say(client: &Client, text: &str) {
    let sent = client.post("/v1/sessions/s1/messages", &json!({"message": text}).to_string());
    assert_eq!(sent.status, 204, "{sent:?}");
}

/// Returns the recorded events of type `kind`.
fn recorded(client: &Client, kind: &str) -> Vec<serde_json::Value> {
    let page = client.get("/v1/sessions/s1/events?events=all").json();
    let events = page["events"].as_array().unwrap();
    events.iter().filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
}

#[test]
fn a_person_watches_and_answers_requests() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    assert_eq!(client.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).status, 200);

    // Requests that were pending before are asked first.
    say(&client, "/run echo allowed");
    testkit::wait_until("the permission is asked for", || !recorded(&client, "permission.requested").is_empty());
    let mut terminal = Terminal::start(place.command(&["sessions", "attach", "s1"]));
    terminal.until("allow? [y]es once");
    terminal.type_line("y");
    testkit::wait_until("the permission is resolved", || !recorded(&client, "permission.resolved").is_empty());
    assert_eq!(recorded(&client, "permission.resolved")[0]["status"], "accept");

    // New requests are asked as well.
    say(&client, "/question Which colour?");
    terminal.until("answer: ");
    assert!(terminal.shown.contains("Which colour?"), "{}", terminal.shown);
    terminal.type_line("Deep Blue");
    testkit::wait_until("the question is resolved", || !recorded(&client, "question.resolved").is_empty());
    let answered = &recorded(&client, "question.resolved")[0];
    assert_eq!((&answered["status"], &answered["answers"]), (&json!("answered"), &json!([["Deep Blue"]])));

    // An answer that is not understood asks again.
    terminal.shown.clear();
    say(&client, "/run echo refused");
    terminal.until("[n]o: ");
    terminal.shown.clear();
    terminal.type_line("what?");
    terminal.until("[n]o: ");
    assert_eq!(recorded(&client, "permission.resolved").len(), 1, "{}", terminal.shown);
    terminal.type_line("no");
    testkit::wait_until("the second permission is resolved", || recorded(&client, "permission.resolved").len() == 2);
    assert_eq!(recorded(&client, "permission.resolved")[1]["status"], "reject");

    // Events are shown live, and the command ends with the session.
    say(&client, "/echo seen by a person");
    terminal.until("seen by a person");
    assert_eq!(client.post("/v1/sessions/s1/terminate", "").status, 204);
    let (status, shown) = terminal.finish();
    assert_eq!(status.code(), Some(0), "{shown}");
    server.stop();
}

#[test]
fn detaching_leaves_the_session_running() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    assert_eq!(client.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).status, 200);
    say(&client, "/run echo one");
    testkit::wait_until("the permission is asked for", || !recorded(&client, "permission.requested").is_empty());
    let mut terminal = Terminal::start(place.command(&["sessions", "attach", "s1"]));
    terminal.until("allow? [y]es once");
    terminal.signal(rustix::process::Signal::INT);
    assert_eq!(terminal.finish().0.code(), Some(130));
    assert_eq!(client.get("/v1/sessions/s1").json()["ended"], false);
    let pending = client.get("/v1/sessions/s1/pending").json();
    let permission = pending["pending"][0]["data"]["permission_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/s1/permissions/{permission}/reply");
    assert_eq!(client.post(&path, r#"{"reply":"once"}"#).status, 204, "leaving has answered it");
    testkit::wait_until("the turn goes on to its end", || !recorded(&client, "turn.ended").is_empty());
    server.stop();
}

#[test]
fn without_input_no_request_is_answered() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    assert_eq!(client.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).status, 200);
    let mut looking = place.command(&["sessions", "attach", "s1"]);
    let mut looking = looking.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut asked = BufReader::new(looking.stderr.take().unwrap()).lines().map(Result::unwrap);
    // The prompt line is ended at the end of input.
    let mut until = |words: &str| assert!(asked.any(|line| line.contains(words)), "it never asked `{words}`");

    say(&client, "/question Which colour?");
    until("answer: ");
    let question = recorded(&client, "question.requested")[0]["question_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/s1/questions/{question}/reply");
    assert_eq!(client.post(&path, r#"{"answers":[["Blue"]]}"#).status, 204, "who looks has answered it");

    say(&client, "/run echo allowed");
    until("allow? ");
    let permission = recorded(&client, "permission.requested")[0]["permission_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/s1/permissions/{permission}/reply");
    assert_eq!(client.post(&path, r#"{"reply":"once"}"#).status, 204, "who looks has answered it");

    assert_eq!(client.post("/v1/sessions/s1/terminate", "").status, 204);
    assert!(looking.wait().unwrap().success());
    server.stop();
}
