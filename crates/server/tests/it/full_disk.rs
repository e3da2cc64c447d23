//! A disk that is full: the call fails clearly, nothing is half written, and when there is room it goes on.

use serde_json::Value;

use crate::child::{check_record, post, socket, start};
use crate::stage::open;

crate::trials!(a_full_disk_is_told_and_outlived, a_disk_that_fills_up_in_a_turn_ends_the_agent_not_the_session);

fn problem(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

async fn a_full_disk_is_told_and_outlived() {
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
        assert_eq!((&refused["status"], &refused["code"]), (&503.into(), &"journal_unavailable".into()), "{refused}");
    }
    server.limit_files(None);
    let stream = say("/echo two").await;
    assert!(stream.contains("turn.ended"), "{stream}");
    server.kill();
    check(directory.path()).await;
}

async fn a_disk_that_fills_up_in_a_turn_ends_the_agent_not_the_session() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(directory.path()).await;
    let socket = socket(directory.path());
    assert!(post(&socket, "/v1/sessions/s1", r#"{"agent":"mock"}"#).await.unwrap().contains("200 OK"));
    let flood = r#"{"message":"/flood 100000000"}"#;
    assert!(post(&socket, "/v1/sessions/s1/messages", flood).await.unwrap().contains("204"));
    server.limit_files(Some(1));
    // Waits for whatever the actor is doing, then hears that there is no room.
    let refused = post(&socket, "/v1/sessions/s1/messages", r#"{"message":"/echo lost"}"#).await.unwrap();
    assert_eq!(problem(&refused)["code"], "journal_unavailable");
    server.limit_files(None);
    let stream = post(&socket, "/v1/sessions/s1/messages/stream", r#"{"message":"/echo two"}"#).await.unwrap();
    assert!(stream.contains("turn.ended"), "{stream}");
    server.kill();
    check(directory.path()).await;
}

/// The record of `s1` is whole, and says that it broke off.
async fn check(directory: &std::path::Path) {
    let sessions = open(directory);
    sessions.recover().await.unwrap();
    let id = protocol::SessionId::new("s1").unwrap();
    let events = sessions.journal(&id).unwrap().after(0, usize::MAX).unwrap();
    check_record(&id, &events);
    assert!(events.iter().any(|event| event.draft.body.kind() == "session.recovered"));
}
