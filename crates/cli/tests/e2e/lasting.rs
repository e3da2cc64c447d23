//! What lasts: queues and sessions go on after the death of a server or of an agent, and a server drains before it stops.

use serde_json::{Value, json};
use testkit::{VivFixture, wait_until};

use crate::fixture::viv_fixture;
use crate::http::Client;
use crate::server::Server;

#[track_caller]
fn send(client: &Client, id: &str, message: &str) {
    let sent = client.try_send(id, message).unwrap();
    assert_eq!(sent.status, 204, "{}", sent.body);
}

fn info(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/sessions/{id}")).json()
}

#[track_caller]
fn wait_for_status(client: &Client, id: &str, status: &str) {
    wait_until(&format!("session {id} to be {status}"), || info(client, id)["status"] == status);
}

/// Returns the types of all events with the given prefix, with the status of `session.status`.
fn told(client: &Client, id: &str, prefix: &str) -> Vec<String> {
    let page = client.get(&format!("/v1/sessions/{id}/events?events=all")).json();
    let events = page["events"].as_array().unwrap().iter();
    let of_kind = events.filter(|event| event["type"].as_str().unwrap().starts_with(prefix));
    of_kind
        .map(|event| match event["data"]["status"].as_str() {
            Some(status) if prefix == "session.status" => {
                format!("{status} {}", event["data"]["reason"].as_str().unwrap_or("-"))
            }
            _ => event["type"].as_str().unwrap().to_owned(),
        })
        .collect()
}

fn texts(client: &Client, id: &str) -> String {
    client.get(&format!("/v1/sessions/{id}/events")).body
}

fn start(place: &VivFixture, arguments: &[&str]) -> Server {
    Server::start_as(place, &[&["serve", "--no-auth"], arguments].concat())
}

#[test]
fn queue_runs_by_itself_after_kill_9() {
    let place = viv_fixture();
    let server = start(&place, &[]);
    let client = server.client();
    assert_eq!(client.try_create("s1").unwrap().status, 200);
    send(&client, "s1", "/hang");
    send(&client, "s1", "/echo first of the queue");
    send(&client, "s1", "/echo second of the queue");
    assert_eq!(info(&client, "s1")["status"], "running");
    server.kill(&place.data_dir());
    let server = start(&place, &[]);
    let client = server.client();
    wait_until("both queued messages to be answered", || {
        info(&client, "s1")["turns"] == 3 && info(&client, "s1")["status"] == "idle"
    });
    let text = texts(&client, "s1");
    let place_of = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word} is missing: {text}"));
    assert!(place_of("first of the queue") < place_of("second of the queue"));
    assert_eq!(info(&client, "s1")["lastPrompt"], "/echo second of the queue");
    assert_eq!(client.get("/v1/sessions/s1/queue").json()["messages"], json!([]));
    server.stop();
}

#[test]
fn server_lets_running_turns_end_and_starts_no_new_ones() {
    let place = viv_fixture();
    let server = start(&place, &["--drain=60s"]);
    let client = server.client();
    for id in ["s1", "s2"] {
        assert_eq!(client.try_create(id).unwrap().status, 200);
    }
    send(&client, "s1", "/slow 30");
    send(&client, "s1", "/echo after the restart");
    rustix::process::kill_process(server.process(), rustix::process::Signal::TERM).unwrap();
    wait_until("the server to say that it stops", || client.get("/readyz").status == 503);
    assert_eq!(client.get("/healthz").status, 200);
    let refused = client.try_send("s2", "hello").unwrap();
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("shutting_down")));
    server.ended();
    let server = start(&place, &[]);
    let client = server.client();
    wait_until("the queue to be answered", || info(&client, "s1")["turns"] == 2);
    wait_for_status(&client, "s1", "idle");
    let text = texts(&client, "s1");
    assert!(!text.contains("interrupted"), "the running turn was interrupted: {text}");
    assert_eq!(told(&client, "s1", "host."), ["host.draining"]);
    assert_eq!(told(&client, "s2", "session.status"), ["asleep host_shut_down"]);
    server.stop();
}

#[test]
fn turn_that_does_not_end_is_interrupted_after_the_drain() {
    let place = viv_fixture();
    let server = start(&place, &["--drain=200ms"]);
    let client = server.client();
    assert_eq!(client.try_create("s1").unwrap().status, 200);
    send(&client, "s1", "/hang");
    server.stop();
    let server = start(&place, &[]);
    let client = server.client();
    assert!(texts(&client, "s1").contains("host_shut_down"));
    assert_eq!(told(&client, "s1", "session.status"), ["running -", "asleep host_shut_down"]);
    server.stop();
}

#[test]
fn session_goes_on_after_its_agent_has_crashed() {
    let place = viv_fixture();
    let server = start(&place, &[]);
    let client = server.client();
    assert_eq!(client.try_create("s1").unwrap().status, 200);
    send(&client, "s1", "/crash");
    wait_for_status(&client, "s1", "asleep");
    assert_eq!(told(&client, "s1", "session.status"), ["running -", "asleep agent_exited"]);
    assert_eq!(told(&client, "s1", "error"), ["error"]);
    send(&client, "s1", "/echo still here");
    wait_until("the turn after the crash to end", || info(&client, "s1")["turns"] == 2);
    assert!(texts(&client, "s1").contains("still here"));
    assert_eq!(info(&client, "s1")["ended"], false);
    server.stop();
}

#[test]
fn idle_agent_is_stopped_and_old_session_ends() {
    let place = viv_fixture();
    place.configure("[sessions]\nidle_stop = \"200ms\"\n");
    let server = start(&place, &[]);
    let client = server.client();
    assert_eq!(client.try_create("s1").unwrap().status, 200);
    wait_for_status(&client, "s1", "asleep");
    assert_eq!(told(&client, "s1", "session.status"), ["asleep idle_timeout"]);
    send(&client, "s1", "/echo awake again");
    wait_until("the next turn", || info(&client, "s1")["turns"] == 1);
    server.stop();
    place.configure("[sessions]\nttl = \"1s\"\n");
    let server = start(&place, &[]);
    let client = server.client();
    assert_eq!(client.try_create("s2").unwrap().status, 200);
    wait_for_status(&client, "s2", "ended");
    assert!(texts(&client, "s2").contains("sessions.ttl"));
    server.stop();
}

#[test]
fn sessions_are_found_by_what_is_known_of_them() {
    let place = viv_fixture();
    let server = start(&place, &[]);
    let client = server.client();
    let body =
        json!({"agent": "mock", "title": "Fix the parser", "labels": {"team": "red"}, "metadata": {"ticket": 7}});
    assert_eq!(client.post("/v1/sessions/s1", &body.to_string()).status, 200);
    assert_eq!(client.try_create("s2").unwrap().status, 200);
    let found = |query: &str| {
        let listed = client.get(&format!("/v1/sessions?{query}"));
        assert_eq!(listed.status, 200, "{query}: {}", listed.body);
        let sessions = listed.json()["sessions"].as_array().unwrap().clone();
        sessions.iter().map(|info| info["sessionId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("label=team=red"), ["s1"]);
    assert_eq!(found("q=PARSER"), ["s1"]);
    assert_eq!(found("status=idle"), ["s2", "s1"]);
    assert_eq!(found("status=ended,asleep"), Vec::<String>::new());
    assert_eq!(found("agent=claude"), Vec::<String>::new());
    let changed = client.patch("/v1/sessions/s1", r#"{"labels":{"team":null,"area":"core"}}"#);
    assert_eq!((changed.status, &changed.json()["labels"]), (200, &json!({"area": "core"})), "{}", changed.body);
    assert_eq!((found("label=team"), found("label=area")), (vec![], vec!["s1".to_owned()]));
    assert_eq!(told(&client, "s1", "session.updated"), ["session.updated"]);
    for query in ["status=busy", "since=yesterday", "sttus=idle"] {
        assert_eq!(client.get(&format!("/v1/sessions?{query}")).status, 400, "{query}");
    }
    let long = json!({"labels": {"team": "x".repeat(256)}}).to_string();
    assert_eq!(client.patch("/v1/sessions/s1", &long).status, 400);
    server.kill(&place.data_dir());
    let server = start(&place, &[]);
    let again = info(&server.client(), "s1");
    assert_eq!((&again["status"], &again["metadata"]), (&json!("asleep"), &json!({"ticket": 7})));
    server.stop();
}

#[test]
fn session_is_created_with_its_own_limits() {
    let place = viv_fixture();
    let server = start(&place, &[]);
    let client = server.client();
    let body = json!({"agent": "mock", "policy": ["net.enabled=false"], "environment": {"GREETING": "hello there"},
        "account": "acme", "user": "ann"});
    let made = client.post("/v1/sessions/s1", &body.to_string());
    assert_eq!(made.status, 200, "{}", made.body);
    let info = info(&client, "s1");
    assert_eq!((&info["account"], &info["user"]), (&json!("acme"), &json!("ann")));
    let listed = client.get("/v1/sessions?account=acme&user=ann").json();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
    for (body, word) in [
        (json!({"agent": "mock", "policy": ["net.enabled=perhaps"]}), "boolean"),
        (json!({"agent": "mock", "environment": {"https_proxy": "http://example.com"}}), "environment"),
        (json!({"agent": "mock", "environment": {"ANTHROPIC_BASE_URL": "http://example.com"}}), "environment"),
        (json!({"agent": "mock", "secrets": ["x"]}), "secrets"),
        (json!({"agent": "mock", "account": ""}), "account"),
    ] {
        let refused = client.post("/v1/sessions/s2", &body.to_string());
        assert!((400..500).contains(&refused.status) && refused.body.contains(word), "{body}: {}", refused.body);
    }
    // The same policy and variables hold after a restart.
    server.kill(&place.data_dir());
    let server = start(&place, &[]);
    let client = server.client();
    client.post("/v1/sessions/s1/messages", r#"{"message":"/run printenv GREETING","whenBusy":"refuse"}"#);
    wait_until("the permission request", || client.get("/v1/sessions/s1/pending").body.contains("per_"));
    let pending = client.get("/v1/sessions/s1/pending").json();
    let id = pending["pending"][0]["data"]["permission_id"].as_str().unwrap().to_owned();
    let answered = client.post(&format!("/v1/sessions/s1/permissions/{id}/reply"), r#"{"reply":"once"}"#);
    assert_eq!(answered.status, 204, "{}", answered.body);
    wait_for_status(&client, "s1", "idle");
    assert!(texts(&client, "s1").contains("hello there"));
    server.stop();
}
