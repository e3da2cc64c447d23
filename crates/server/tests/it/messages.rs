//! Messages and their streams.

use serde_json::json;

use crate::stage::Stage;
use testkit::SseFrame;

crate::trials!(
    message_stream_contains_its_turn,
    message_stream_ends_when_a_person_is_needed,
    second_message_and_its_stream_wait,
    second_message_can_be_refused,
    repeated_message_is_one_turn,
    interrupt_ends_the_turn,
    message_stream_ends_with_the_session,
);

async fn stream(stage: &Stage, text: &str) -> Vec<SseFrame> {
    let body = json!({"message": text}).to_string();
    let answer = stage.client.post("/v1/sessions/s1/messages/stream", &body).await;
    assert_eq!((answer.status, &answer.headers["content-type"]), (200, &"text/event-stream".parse().unwrap()));
    answer.frames()
}

fn kinds(frames: &[SseFrame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.event.as_str()).collect()
}

async fn message_stream_contains_its_turn() {
    let stage = Stage::new();
    stage.session("s1").await;
    let frames = stream(&stage, "/echo hello").await;
    assert_eq!((kinds(&frames)[0], *kinds(&frames).last().unwrap()), ("turn.started", "turn.ended"));
    let turn = frames[0].json()["turn_id"].clone();
    assert!(frames.iter().all(|frame| frame.json()["turn_id"] == turn));
    let ids: Vec<u64> = frames.iter().map(|frame| frame.sequence().unwrap()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
}

async fn message_stream_ends_when_a_person_is_needed() {
    let stage = Stage::new();
    for (command, last) in
        [("/permission", "permission.requested"), ("/question", "question.requested"), ("/error", "error")]
    {
        let id = &command[1..];
        stage.session(id).await;
        let body = json!({"message": command}).to_string();
        let answer = stage.client.post(&format!("/v1/sessions/{id}/messages/stream"), &body).await;
        assert_eq!(*kinds(&answer.frames()).last().unwrap(), last);
    }
}

async fn second_message_and_its_stream_wait() {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.send("s1", "/slow 3").await;
    let frames = stream(&stage, "/echo second").await;
    assert_eq!(kinds(&frames)[0], "turn.started");
    let events = stage.client.get("/v1/sessions/s1/events").await.json();
    let order: Vec<_> =
        events["events"].as_array().unwrap().iter().filter_map(|event| event["type"].as_str()).collect();
    let turns: Vec<_> = order.iter().filter(|kind| kind.starts_with("turn.")).copied().collect();
    assert_eq!(turns, ["turn.started", "turn.ended", "turn.started", "turn.ended"]);
    assert!(order.contains(&"message.queued"));
}

async fn second_message_can_be_refused() {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.send("s1", "/slow 1000").await;
    let body = r#"{"message":"/echo no","whenBusy":"refuse"}"#;
    let refused = stage.client.post("/v1/sessions/s1/messages", body).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &"turn_running".into()));
}

async fn repeated_message_is_one_turn() {
    let stage = Stage::new();
    stage.session("s1").await;
    let body = r#"{"message":"/echo once","clientMessageId":"m1"}"#;
    let first = stage.client.post("/v1/sessions/s1/messages", body).await;
    let again = stage.client.post("/v1/sessions/s1/messages", body).await;
    assert_eq!((first.status, again.status), (204, 204));
    assert_eq!(first.headers["x-viv-turn-id"], again.headers["x-viv-turn-id"]);
    // A different message with the same id is refused, not dropped.
    for body in [
        r#"{"message":"/echo twice","clientMessageId":"m1"}"#,
        r#"{"message":"/echo once","clientMessageId":"m1","attachments":[{"path":"a.md"}]}"#,
    ] {
        let other = stage.client.post("/v1/sessions/s1/messages", body).await;
        assert_eq!((other.status, &other.json()["code"]), (422, &"idempotency_key_reused".into()), "{body}");
    }
    for name in ["", &"x".repeat(256)] {
        let body = json!({"message": "/echo hi", "clientMessageId": name}).to_string();
        let unnamed = stage.client.post("/v1/sessions/s1/messages", &body).await;
        assert_eq!((unnamed.status, &unnamed.json()["code"]), (400, &"invalid_request".into()), "{body}");
    }
}

async fn interrupt_ends_the_turn() {
    let stage = Stage::new();
    stage.session("s1").await;
    let from = stage.send("s1", "/slow 1000").await;
    assert_eq!(stage.client.post("/v1/sessions/s1/interrupt", "").await.status, 204);
    let mut count = 4;
    let ended = loop {
        let frames = stage.client.first_frames(&format!("/v1/sessions/s1/events/sse?offset={from}"), count).await;
        match frames.into_iter().find(|frame| frame.event == "turn.ended") {
            Some(frame) => break frame,
            None => count += 1,
        }
    };
    assert_eq!(ended.json()["data"]["outcome"], "interrupted");
}

async fn message_stream_ends_with_the_session() {
    let stage = Stage::new();
    stage.session("s1").await;
    let frames = stream(&stage, "/exit 3").await;
    // The error ends the stream; the journal continues to the end.
    assert_eq!(*kinds(&frames).last().unwrap(), "error");
    let rest = stage
        .client
        .get(&format!("/v1/sessions/s1/events/sse?offset={}", frames.last().unwrap().sequence().unwrap()))
        .await;
    assert_eq!(kinds(&rest.frames()), ["turn.ended", "session.ended"]);
}
