//! A full disk: the call fails clearly, nothing is partly written, and it works again when there is space.

use serde_json::Value;

use crate::child::{call, check_record, post, socket, start};
use crate::stage::open;

crate::trials!(
    full_disk_is_reported_and_recovered_from,
    full_disk_during_a_turn_ends_the_agent_not_the_session,
    every_change_on_a_full_disk_fails_clearly_and_can_be_retried,
    recorded_end_counts_even_if_the_index_is_full,
);

fn problem(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

async fn full_disk_is_reported_and_recovered_from() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(directory.path()).await;
    let socket = socket(directory.path());
    let say = async |text: &str| {
        let body = format!(r#"{{"message":"{text}"}}"#);
        post(&socket, "/v1/sessions/s1/messages/stream", &body).await.unwrap()
    };
    assert!(post(&socket, "/v1/sessions/s1", r#"{"agent":"mock"}"#).await.unwrap().contains("200 OK"));
    assert!(say("/echo one").await.contains("turn.ended"));
    server.limit_files(Some(1));
    for _ in 0..3 {
        let refused = problem(&say("/echo lost").await);
        assert_eq!((&refused["status"], &refused["code"]), (&507.into(), &"disk_full".into()), "{refused}");
    }
    server.limit_files(None);
    let stream = say("/echo two").await;
    assert!(stream.contains("turn.ended"), "{stream}");
    server.kill();
    check(directory.path()).await;
}

async fn full_disk_during_a_turn_ends_the_agent_not_the_session() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(directory.path()).await;
    let socket = socket(directory.path());
    assert!(post(&socket, "/v1/sessions/s1", r#"{"agent":"mock"}"#).await.unwrap().contains("200 OK"));
    let flood = r#"{"message":"/flood 100000000"}"#;
    assert!(post(&socket, "/v1/sessions/s1/messages", flood).await.unwrap().contains("204"));
    server.limit_files(Some(1));
    // Waits for the actor, then fails because the disk is full.
    let refused = post(&socket, "/v1/sessions/s1/messages", r#"{"message":"/echo lost"}"#).await.unwrap();
    assert_eq!(problem(&refused)["code"], "disk_full");
    server.limit_files(None);
    let stream = post(&socket, "/v1/sessions/s1/messages/stream", r#"{"message":"/echo two"}"#).await.unwrap();
    assert!(stream.contains("turn.ended"), "{stream}");
    server.kill();
    check(directory.path()).await;
}

/// Checks that the journal of `s1` is complete and records the interrupted turn.
async fn check(directory: &std::path::Path) {
    let sessions = open(directory);
    sessions.recover().await.unwrap();
    let id = protocol::SessionId::new("s1").unwrap();
    let events = sessions.journal(&id).unwrap().after(0, usize::MAX).unwrap();
    check_record(&id, &events);
    assert!(events.iter().any(|event| event.draft.body.kind() == "session.recovered"));
}

/// Creates a session and sends a message; returns the id of the agent's request, if there is one.
async fn session(socket: &std::path::Path, id: &str, text: &str) -> Option<String> {
    let (status, response) = call(socket, "POST", &format!("/v1/sessions/{id}"), br#"{"agent":"mock"}"#).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&response));
    let body = serde_json::json!({"message": text}).to_string();
    call(socket, "POST", &format!("/v1/sessions/{id}/messages/stream"), body.as_bytes()).await;
    let (_, pending) = call(socket, "GET", &format!("/v1/sessions/{id}/pending"), b"").await;
    let request = &serde_json::from_slice::<Value>(&pending).unwrap()["pending"][0]["data"];
    ["permission_id", "question_id"].iter().find_map(|name| request[*name].as_str().map(str::to_owned))
}

async fn every_change_on_a_full_disk_fails_clearly_and_can_be_retried() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let socket = socket(directory.path());
    for id in ["s1", "ended", "copied"] {
        session(&socket, id, "/ask hello").await;
    }
    let permission = session(&socket, "permission", "/run echo hi").await.unwrap();
    let question = session(&socket, "question", "/question").await.unwrap();
    let granted = session(&socket, "granted", "/run echo hi").await.unwrap();
    let always = format!("/v1/sessions/granted/permissions/{granted}/reply");
    assert_eq!(call(&socket, "POST", &always, br#"{"reply":"always"}"#).await.0, 204);
    let (_, bundle) = call(&socket, "GET", "/v1/sessions/copied/export", b"").await;
    for id in ["ended", "copied"] {
        assert_eq!(call(&socket, "POST", &format!("/v1/sessions/{id}/terminate"), b"").await.0, 204);
    }
    let other = tempfile::tempdir().unwrap();
    let elsewhere = start(other.path()).await;
    let there = crate::child::socket(other.path());

    let changes: Vec<(&str, String, &[u8])> = vec![
        ("POST", "/v1/sessions/new".into(), br#"{"agent":"mock"}"#),
        ("PATCH", "/v1/sessions/s1".into(), br#"{"title":"another"}"#),
        ("POST", "/v1/sessions/s1/fork".into(), br#"{"sessionId":"fork"}"#),
        ("POST", "/v1/sessions/ended/replay".into(), br#"{"sessionId":"again"}"#),
        ("POST", "/v1/sessions/s1/messages".into(), br#"{"message":"/echo hi"}"#),
        ("POST", format!("/v1/sessions/permission/permissions/{permission}/reply"), br#"{"reply":"once"}"#),
        ("POST", format!("/v1/sessions/question/questions/{question}/reply"), br#"{"answers":[["a"]]}"#),
        ("POST", "/v1/sessions/s1/policy/narrow".into(), br#"{"rules":["net.enabled=false"]}"#),
        ("DELETE", format!("/v1/sessions/granted/grants/{granted}"), b""),
        ("POST", "/v1/sessions/s1/terminate".into(), b""),
        ("DELETE", "/v1/sessions/ended".into(), b""),
    ];
    server.limit_files(Some(1));
    for (method, path, body) in &changes {
        let (status, response) = call(&socket, method, path, body).await;
        let response = String::from_utf8_lossy(&response);
        let problem: Value = serde_json::from_str(&response).unwrap_or_default();
        assert_eq!((status, &problem["code"]), (507, &"disk_full".into()), "{method} {path}: {response}");
        assert_eq!(problem["hint"], "df -h", "{method} {path}: {response}");
    }
    elsewhere.limit_files(Some(1));
    let (status, response) = call(&there, "POST", "/v1/import", &bundle).await;
    assert_eq!(status, 507, "{}", String::from_utf8_lossy(&response));
    elsewhere.limit_files(None);
    assert_eq!(call(&there, "POST", "/v1/import", &bundle).await.0, 200, "the failed import left data behind");

    server.limit_files(None);
    for (method, path, body) in &changes {
        // The request is lost with its turn, which is reported; all other changes succeed.
        let lost = ["/permissions/", "/questions/"].iter().any(|part| path.contains(part));
        let (status, response) = call(&socket, method, path, body).await;
        let expected = if lost { status == 409 } else { (200..300).contains(&status) };
        assert!(expected, "{method} {path}: {status} {}", String::from_utf8_lossy(&response));
    }
}

async fn recorded_end_counts_even_if_the_index_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let socket = socket(directory.path());
    session(&socket, "s1", "/echo hi").await;
    // The log of the index is the largest file: it cannot grow, but the journal can.
    let data = std::fs::read_dir(directory.path().join("data")).unwrap().map(Result::unwrap);
    let logs = data.filter(|entry| entry.file_name().to_string_lossy().ends_with("-wal"));
    let list = logs.map(|entry| entry.metadata().unwrap().len()).min().unwrap();
    let journal = directory.path().join("data/trajectory/s1.jsonl").metadata().unwrap().len();
    assert!(journal + (8 << 10) < list, "{journal} {list}");
    server.limit_files(Some(list));
    let (status, response) = call(&socket, "POST", "/v1/sessions/s1/terminate", b"").await;
    assert_eq!(status, 204, "{}", String::from_utf8_lossy(&response));
    let (_, events) = call(&socket, "GET", "/v1/sessions/s1/events", b"").await;
    assert!(String::from_utf8_lossy(&events).contains("session.ended"));
    let shown = async || {
        let (_, shown) = call(&socket, "GET", "/v1/sessions/s1", b"").await;
        let shown = serde_json::from_slice::<Value>(&shown).unwrap();
        assert!(shown["eventCount"].as_u64().unwrap() > 3, "{shown}");
        shown["ended"].clone()
    };
    assert_eq!(shown().await, true, "the session is listed as running while the index cannot be written");
    let late = call(&socket, "POST", "/v1/sessions/s1/messages", br#"{"message":"late"}"#).await;
    assert_eq!(late.0, 409, "{}", String::from_utf8_lossy(&late.1));
    server.limit_files(None);
    assert_eq!(shown().await, true);
    let data = store::DataDir::open(directory.path().join("data")).unwrap();
    let list = store::SessionIndex::open(&data, std::sync::Arc::new(store::SystemClock)).unwrap();
    assert!(list.find("s1").unwrap().outcome.is_some(), "the list was not told when there was room");
    assert_eq!(call(&socket, "POST", "/v1/sessions/s1/terminate", b"").await.0, 204);
    assert_eq!(call(&socket, "DELETE", "/v1/sessions/s1", b"").await.0, 204);
}
