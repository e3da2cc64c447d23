//! Grants over the API.

use http::Method;
use serde_json::{Value, json};

use crate::client::request;
use crate::stage::Stage;

crate::trials!(always_covers_exactly_its_pattern, grant_can_be_revoked, grant_survives_a_restart);

/// Sends a command to `s1` and returns the last event of its turn, or its request.
pub(crate) async fn say(stage: &Stage, message: &str) -> Value {
    let body = json!({"message": message}).to_string();
    let answer = stage.client.post("/v1/sessions/s1/messages/stream", &body).await;
    answer.frames().last().unwrap().json()
}

/// Answers a request and waits for the end of its turn.
pub(crate) async fn reply(stage: &Stage, asked: &Value, reply: &str) {
    let id = asked["data"]["permission_id"].as_str().unwrap();
    let path = format!("/v1/sessions/s1/permissions/{id}/reply");
    assert_eq!(stage.client.post(&path, &json!({"reply": reply}).to_string()).await.status, 204);
    let turn = &asked["turn_id"];
    let mut count = 1;
    loop {
        let path = format!("/v1/sessions/s1/events/sse?offset={}", asked["sequence"]);
        let frames = stage.client.first_frames(&path, count).await;
        if frames.iter().any(|frame| frame.event == "turn.ended" && frame.json()["turn_id"] == *turn) {
            return;
        }
        count += 1;
    }
}

async fn grants(stage: &Stage) -> Vec<Value> {
    stage.client.get("/v1/sessions/s1/grants").await.json()["grants"].as_array().unwrap().clone()
}

async fn always_covers_exactly_its_pattern() {
    let stage = Stage::new();
    stage.session("s1").await;
    let asked = say(&stage, "/run echo one").await;
    assert_eq!(asked["type"], "permission.requested", "{asked}");
    reply(&stage, &asked, "always").await;
    let granted = grants(&stage).await;
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0]["match"]["input"], asked["data"]["metadata"]["input"]);
    assert_eq!(say(&stage, "/run echo one").await["type"], "turn.ended", "the same command was asked about again");
    let other = say(&stage, "/run echo two").await;
    assert_eq!(other["type"], "permission.requested", "another command was allowed by it");
    reply(&stage, &other, "once").await;
    assert_eq!(grants(&stage).await.len(), 1, "`once` created a grant");
}

async fn grant_can_be_revoked() {
    let stage = Stage::new();
    stage.session("s1").await;
    let asked = say(&stage, "/run echo one").await;
    reply(&stage, &asked, "always").await;
    let id = grants(&stage).await[0]["grant_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/s1/grants/{id}");
    assert_eq!(stage.client.call(request(Method::DELETE, &path, "")).await.status, 204);
    let again = stage.client.call(request(Method::DELETE, &path, "")).await;
    assert_eq!((again.status, &again.json()["code"]), (404, &"grant_not_found".into()));
    assert!(grants(&stage).await.is_empty());
    assert_eq!(say(&stage, "/run echo one").await["type"], "permission.requested");
}

async fn grant_survives_a_restart() {
    let stage = Stage::new();
    stage.session("s1").await;
    let asked = say(&stage, "/run echo one").await;
    reply(&stage, &asked, "always").await;
    stage.sessions.close_all().await;
    let stage = stage.restarted();
    assert_eq!(grants(&stage).await.len(), 1);
    assert_eq!(say(&stage, "/run echo one").await["type"], "turn.ended", "it was forgotten");
}
