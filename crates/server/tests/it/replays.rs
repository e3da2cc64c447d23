//! Replays over the API.

use serde_json::{Value, json};

use crate::client::{ApiResponse, request};
use crate::grants;
use crate::stage::Stage;

crate::trials!(
    replay_equals_its_recording,
    grants_are_replayed,
    message_ids_are_replayed,
    differences_are_returned,
    impossible_replay_is_refused,
);

async fn say(stage: &Stage, session: &str, text: &str) -> ApiResponse {
    let body = json!({"message": text}).to_string();
    stage.client.post(&format!("/v1/sessions/{session}/messages/stream"), &body).await
}

async fn replay_equals_its_recording() {
    let stage = Stage::new();
    stage.session("s1").await;
    for text in ["/ask hello", "/echo two"] {
        say(&stage, "s1", text).await;
    }
    let played = stage.client.post("/v1/sessions/s1/replay", r#"{"sessionId":"again"}"#).await;
    assert_eq!(played.status, 200, "{}", played.text());
    let same = json!({"sessionId": "again", "outcome": "completed", "same": true, "differences": [], "callsLeft": 0});
    assert_eq!(played.json(), same);
    let events = stage.client.get("/v1/sessions/again/events").await.json();
    assert_eq!(events["events"].as_array().unwrap().last().unwrap()["type"], "session.ended");
    let usage = stage.client.get("/v1/sessions/again/usage").await.json();
    assert_eq!(usage["spentPicos"], 0, "a replay was paid for");
}

/// Replays `s1` and returns the report.
async fn replay(stage: &Stage) -> Value {
    let played = stage.client.post("/v1/sessions/s1/replay", "").await;
    assert_eq!(played.status, 200, "{}", played.text());
    played.json()
}

async fn grants_are_replayed() {
    let stage = Stage::new();
    stage.session("s1").await;
    let asked = grants::say(&stage, "/run echo hi").await;
    grants::reply(&stage, &asked, "always").await;
    assert_eq!(grants::say(&stage, "/run echo hi").await["type"], "turn.ended");
    let played = replay(&stage).await;
    assert_eq!((&played["same"], &played["outcome"]), (&json!(true), &json!("completed")), "{played}");
}

async fn message_ids_are_replayed() {
    let stage = Stage::new();
    stage.session("s1").await;
    let path = "/v1/sessions/s1/messages/stream";
    stage.client.post(path, r#"{"message":"/echo one","clientMessageId":"m1"}"#).await;
    let mut named = request(http::Method::POST, path, r#"{"message":"/echo two"}"#);
    named.headers_mut().insert("idempotency-key", "k1".parse().unwrap());
    stage.client.call(named).await;
    say(&stage, "s1", "/echo three").await;
    let played = replay(&stage).await;
    assert_eq!((&played["same"], &played["differences"]), (&json!(true), &json!([])), "{played}");
}

async fn differences_are_returned() {
    let stage = Stage::new();
    let workspace = stage.workspace();
    std::fs::write(workspace.join("note.txt"), "one").unwrap();
    let body = json!({"agent": "mock", "directory": workspace}).to_string();
    stage.client.post("/v1/sessions/s1", &body).await;
    say(&stage, "s1", "/ask hello").await;
    std::fs::write(workspace.join("note.txt"), "two").unwrap();
    let refused = stage.client.post("/v1/sessions/s1/replay", "").await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &"replay_impossible".into()), "{}", refused.text());
    assert!(refused.json()["differences"].to_string().contains("note.txt"), "{}", refused.text());
    std::fs::write(workspace.join("note.txt"), "one").unwrap();
    assert_eq!(stage.client.post("/v1/sessions/s1/replay", "").await.status, 200);
}

async fn impossible_replay_is_refused() {
    let stage = Stage::new();
    let missing = stage.client.post("/v1/sessions/nobody/replay", "").await;
    assert_eq!((missing.status, &missing.json()["code"]), (404, &"session_not_found".into()));
    stage.session("s1").await;
    let taken = stage.client.post("/v1/sessions/s1/replay", r#"{"sessionId":"s1"}"#).await;
    assert_eq!((taken.status, &taken.json()["code"]), (409, &"session_already_exists".into()), "{}", taken.text());
    let odd = stage.client.call(request(http::Method::POST, "/v1/sessions/s1/replay", r#"{"of":"s2"}"#)).await;
    assert_eq!(odd.status, 400);
}
