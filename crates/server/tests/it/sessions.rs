//! Sessions over the API.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::stage::Stage;

crate::trials!(
    session_can_be_created_listed_shown_and_ended,
    session_can_be_renamed_and_resumed,
    one_of_two_concurrent_creates_is_a_conflict,
    terminate_is_quick_final_and_idempotent,
    session_list_continues_after_its_cursor,
    every_list_continues_after_its_cursor,
    agents_are_listed,
    agent_output_that_is_not_understood_is_counted,
    agent_works_in_the_directory,
);

async fn session_can_be_created_listed_shown_and_ended() {
    let stage = Stage::new();
    let made = stage.client.post("/v1/sessions/s1", r#"{"agent":"mock","title":"First"}"#).await;
    assert_eq!((made.status, &made.json()["healthy"]), (200, &json!(true)));
    let listed = stage.client.get("/v1/sessions").await.json();
    let shown = stage.client.get("/v1/sessions/s1").await.json();
    assert_eq!(listed["sessions"][0]["sessionId"], "s1");
    for field in ["agent", "agentMode", "permissionMode", "ended", "eventCount", "createdAt", "updatedAt", "title"] {
        assert!(!shown[field].is_null(), "`{field}` is missing: {shown}");
    }
    assert_eq!(stage.client.post("/v1/sessions/s1/terminate", "").await.status, 204);
    assert_eq!(stage.client.get("/v1/sessions/s1").await.json()["ended"], json!(true));
    let late = stage.client.post("/v1/sessions/s1/messages", r#"{"message":"hi"}"#).await;
    assert_eq!((late.status, &late.json()["code"]), (409, &"session_ended".into()));
}

async fn session_can_be_renamed_and_resumed() {
    let stage = Stage::new();
    stage.session("s1").await;
    let request = crate::client::request(http::Method::PATCH, "/v1/sessions/s1", r#"{"title":"Second"}"#);
    let renamed = stage.client.call(request).await;
    assert_eq!((renamed.status, &renamed.json()["title"]), (200, &json!("Second")));
    assert_eq!(stage.client.get("/v1/sessions/s1").await.json()["title"], "Second");
    assert_eq!(stage.client.post("/v1/sessions/s1/resume", "").await.status, 204);
    assert_eq!(stage.client.post("/v1/sessions/nobody/resume", "").await.status, 404);
}

async fn one_of_two_concurrent_creates_is_a_conflict() {
    let stage = Stage::new();
    let create = || stage.client.post("/v1/sessions/s1", r#"{"agent":"mock"}"#);
    let (one, other) = tokio::join!(create(), create());
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
}

async fn terminate_is_quick_final_and_idempotent() {
    let stage = Stage::new();
    stage.session("s1").await;
    let from = stage.send("s1", "/flood 100000000").await;
    stage.client.first_frames(&format!("/v1/sessions/s1/events/sse?offset={from}"), 20).await;
    let started = Instant::now();
    assert_eq!(stage.client.post("/v1/sessions/s1/terminate", "").await.status, 204);
    assert!(started.elapsed() < Duration::from_secs(1), "it took {:?}", started.elapsed());
    let count = stage.client.get("/v1/sessions/s1").await.json()["eventCount"].as_u64().unwrap();
    assert_eq!(stage.client.post("/v1/sessions/s1/terminate", "").await.status, 204);
    let last = stage.client.get(&format!("/v1/sessions/s1/events?offset={}", count - 1)).await.json();
    assert_eq!(last["events"].as_array().unwrap().len(), 1, "something came after the end");
    assert_eq!(last["events"][0]["type"], "session.ended");
    assert_eq!(last["events"][0]["data"]["reason"], "terminated");
}

async fn session_list_continues_after_its_cursor() {
    let stage = Stage::new();
    for number in 0..5 {
        stage.session(&format!("s{number}")).await;
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/sessions?limit=2".to_owned());
    loop {
        let page = stage.client.get(&path).await.json();
        let ids =
            page["sessions"].as_array().unwrap().iter().map(|info| info["sessionId"].as_str().unwrap().to_owned());
        seen.extend(ids);
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/v1/sessions?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, ["s4", "s3", "s2", "s1", "s0"]);
}

async fn agents_are_listed() {
    let stage = Stage::new();
    let agents = stage.client.get("/v1/agents").await.json();
    let mock = &agents["agents"][0];
    assert_eq!(
        (&mock["id"], &mock["installed"], &mock["credentialsAvailable"]),
        (&json!("mock"), &json!(true), &json!(true))
    );
    assert_eq!(mock["capabilities"].as_object().unwrap().len(), 18);
}

async fn agent_output_that_is_not_understood_is_counted() {
    let stage = Stage::new();
    let drift = async || stage.client.get("/v1/agents").await.json()["agents"][0]["drift"].clone();
    assert_eq!(drift().await, json!({}));
    assert_eq!(stage.client.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).await.status, 200);
    stage.client.post("/v1/sessions/s1/messages/stream", r#"{"message":"/unparsed"}"#).await;
    assert_eq!(drift().await, json!({"built-in": {"unparsed": 1, "unknown": 0}}));
}

async fn agent_works_in_the_directory() {
    let stage = Stage::new();
    let workspace = stage.workspace();
    let body = json!({"agent": "mock", "directory": workspace}).to_string();
    assert_eq!(stage.client.post("/v1/sessions/s1", &body).await.status, 200);
    stage.client.post("/v1/sessions/s1/messages/stream", r#"{"message":"/file made.md"}"#).await;
    assert!(workspace.join("made.md").exists());
}

/// Returns every item of a list, page by page.
async fn paged(stage: &Stage, path: &str, list: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        let page = stage.client.get(&format!("{path}{separator}limit=2{cursor}")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let header = page.headers.get("x-viv-next-cursor").map(|value| value.to_str().unwrap().to_owned());
        let body = page.json();
        let items = if list.is_empty() { &body } else { &body[list] };
        assert!(items.as_array().unwrap().len() <= 2, "{path}");
        all.extend(items.as_array().unwrap().iter().cloned());
        match header.or(body["nextCursor"].as_str().map(str::to_owned)) {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// Removes times, because the index can be updated shortly after the end of a turn.
fn undated(mut list: Vec<Value>) -> Vec<Value> {
    list.iter_mut().filter_map(Value::as_object_mut).for_each(|item| drop(item.remove("updatedAt")));
    list
}

async fn every_list_continues_after_its_cursor() {
    let stage = Stage::new();
    for number in 0..5 {
        let id = format!("s{number}");
        stage.session(&id).await;
        for text in ["/ask hello", "/question"] {
            let body = json!({"message": text}).to_string();
            stage.client.post(&format!("/v1/sessions/{id}/messages/stream"), &body).await;
        }
        let file = format!("/v1/fs/mkdir?session_id=s0&path=d{number}");
        assert_eq!(stage.client.post(&file, "").await.status, 200);
    }
    for (path, list) in [
        ("/v1/pending", "pending"),
        ("/v1/sessions/s1/pending", "pending"),
        ("/v1/sessions", "sessions"),
        ("/v1/usage?by=session", "rows"),
        ("/v1/sessions/s1/grants", "grants"),
        ("/v1/fs/entries?session_id=s0", ""),
    ] {
        let whole = stage.client.get(path).await.json();
        let whole = if list.is_empty() { whole } else { whole[list].clone() };
        let (paged, whole) = (paged(&stage, path, list).await, whole.as_array().unwrap().clone());
        assert_eq!(undated(paged), undated(whole), "{path}");
        let separator = if path.contains('?') { '&' } else { '?' };
        let refused = stage.client.get(&format!("{path}{separator}cursor=somewhere")).await;
        assert_eq!(refused.status, 400, "{path}");
    }
}
