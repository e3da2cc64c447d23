//! Permissions and questions over the API.

use serde_json::{Value, json};

use crate::stage::Stage;

crate::trials!(second_answer_to_a_permission_is_a_conflict, question_needs_all_answers, pending_requests_are_listed,);

/// Sends `command` and returns the request that it makes.
async fn ask(stage: &Stage, command: &str) -> Value {
    let body = json!({"message": command}).to_string();
    let answer = stage.client.post("/v1/sessions/s1/messages/stream", &body).await;
    answer.frames().last().unwrap().json()["data"].clone()
}

async fn resolved(stage: &Stage, kind: &str) -> Value {
    let mut count = 1;
    loop {
        let frames = stage.client.first_frames("/v1/sessions/s1/events/sse", count).await;
        match frames.iter().find(|frame| frame.event == kind) {
            Some(frame) => return frame.json()["data"].clone(),
            None => count += 1,
        }
    }
}

async fn second_answer_to_a_permission_is_a_conflict() {
    let stage = Stage::new();
    stage.session("s1").await;
    let request = ask(&stage, "/permission").await;
    let path = format!("/v1/sessions/s1/permissions/{}/reply", request["permission_id"].as_str().unwrap());
    assert_eq!(stage.client.post(&path, r#"{"reply":"always"}"#).await.status, 204);
    let again = stage.client.post(&path, r#"{"reply":"reject"}"#).await;
    assert_eq!((again.status, &again.json()["code"]), (409, &"permission_not_pending".into()));
    assert_eq!(resolved(&stage, "permission.resolved").await["status"], "accept_for_session");
}

async fn question_needs_all_answers() {
    let stage = Stage::new();
    stage.session("s1").await;
    let request = ask(&stage, "/question").await;
    let path = format!("/v1/sessions/s1/questions/{}/reply", request["question_id"].as_str().unwrap());
    for misfit in [r#"{"answers":[]}"#, r#"{"answers":[["blue"],["red"]]}"#] {
        let refused = stage.client.post(&path, misfit).await;
        assert_eq!((refused.status, &refused.json()["code"]), (400, &"invalid_request".into()), "{misfit}");
    }
    assert_eq!(stage.client.post(&path, r#"{"answers":[["blue","red"]]}"#).await.status, 204);
    let resolution = resolved(&stage, "question.resolved").await;
    assert_eq!(
        (&resolution["status"], &resolution["response"], &resolution["answers"]),
        (&json!("answered"), &json!("blue"), &json!([["blue", "red"]]))
    );
    let reject = format!("/v1/sessions/s1/questions/{}/reject", request["question_id"].as_str().unwrap());
    assert_eq!(stage.client.post(&reject, "").await.status, 409);
}

async fn pending_requests_are_listed() {
    let stage = Stage::new();
    stage.session("s1").await;
    let request = ask(&stage, "/question").await;
    let pending = stage.client.get("/v1/sessions/s1/pending").await.json();
    assert_eq!(pending["pending"][0]["data"]["question_id"], request["question_id"]);
    assert_eq!(
        (&pending["pending"][0]["type"], &pending["pending"][0]["sessionId"]),
        (&json!("question"), &json!("s1"))
    );
    let time = |name: &str| pending["pending"][0][name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let patience = pending["pending"][0]["patienceMs"].as_i64().unwrap();
    assert_eq!(time("deadline").as_millisecond() - time("askedAt").as_millisecond(), patience);
    assert_eq!(stage.client.get("/v1/pending").await.json(), pending);
}
