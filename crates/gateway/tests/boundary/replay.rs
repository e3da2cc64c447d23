//! Replay of a recording: the same answers in the same order, and an error for every other request.

use std::sync::Arc;

use gateway::{GatewayIdentity, GatewayLimits, PriceTable, ReplayUpstream, RequestNormalizer, Upstream};
use http::StatusCode;
use protocol::SessionId;
use serde_json::{Value, json};
use store::{DataDir, FileBodyStore, FileJournal, SystemClock};
use tempfile::TempDir;

use crate::support::test_gateway::{TestGateway, prompt, scripted};

const RULES: &str = r#"
  - {when: {prompt: {contains: "twice"}}, times: 1, answer: [{text: "the first time"}]}
  - {when: {prompt: {contains: "twice"}}, answer: [{text: "the second time"}]}
  - {when: {prompt: {contains: "refuse"}}, error: {status: 429, message: "slow down"}}
  - {when: {prompt: {contains: "hang up"}}, answer: [{text: "And then"}, cut]}
  - {answer: [{text: "You said: ${prompt}"}]}
"#;

/// Records a session that sends `requests`; returns its data directory and an upstream that replays it.
async fn recorded(requests: &[(&str, String)]) -> (TempDir, ReplayUpstream) {
    let directory = tempfile::tempdir().unwrap();
    let (data, session) = (DataDir::open(directory.path()).unwrap(), SessionId::new("s1").unwrap());
    let journal = FileJournal::open(data.journal(&session), session.clone(), Arc::new(SystemClock)).unwrap().journal;
    let (journal, bodies) = (Arc::new(journal), Arc::new(FileBodyStore::new(&data)));
    let gateway =
        TestGateway::with_identity(scripted(RULES), PriceTable::default(), |identity: &mut GatewayIdentity| {
            identity.journal = journal.clone();
            identity.bodies = bodies;
        });
    for (path, body) in requests {
        gateway.post(path, body.clone()).await;
    }
    gateway.attachment.close().await;
    let replay = ReplayUpstream::open(&data, &session, RequestNormalizer::new(&[]).unwrap()).unwrap();
    assert_eq!(replay.unused_calls(), requests.len());
    (directory, replay)
}

fn start_gateway(replay: ReplayUpstream) -> TestGateway {
    TestGateway::with_upstream(Arc::new(replay), PriceTable::default(), GatewayLimits::default())
}

fn messages(text: &str) -> (&'static str, String) {
    ("/v1/messages", prompt(text, true))
}

#[tokio::test]
async fn equal_requests_are_answered_in_recorded_order_and_cost_nothing() {
    let (_directory, replay) = recorded(&[messages("say it twice"), messages("other"), messages("say it twice")]).await;
    assert!(replay.is_free() && replay.models() == ["claude-test"]);
    let gateway = start_gateway(replay);
    // The model has no price; replay needs none.
    for (text, expected) in [("twice", "the first time"), ("other", "You said"), ("twice", "the second time")] {
        let text = if text == "twice" { "say it twice" } else { text };
        let answer = gateway.post("/v1/messages", prompt(text, true)).await;
        assert!(answer.status == StatusCode::OK && stream_text(answer.text()).contains(expected), "{}", answer.text());
    }
    let again = gateway.post("/v1/messages", prompt("say it twice", true)).await;
    assert_eq!(again.status, StatusCode::FORBIDDEN);
    assert!(again.text().contains("was recorded 2 times and is sent once more"), "{}", again.text());
    let usage_row = gateway.close().await.session_usage();
    assert_eq!((usage_row.spent_picos, usage_row.held_picos, usage_row.unknown), (0, 0, 0));
}

/// Returns the text of a stream.
fn stream_text(stream: &str) -> String {
    let events = stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    events.filter_map(|event| event["delta"]["text"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn values_that_differ_in_every_run_are_ignored() {
    let request = |run: &str| {
        let text = format!("Today is 2026-01-0{run}. Look at /tmp/run-{run}/x, which took {run}.5 seconds.");
        let body = json!({"model": "m", "stream": false, "messages": [{"role": "user", "content": text}],
            "metadata": {"user_id": run}, "max_tokens": 5});
        ("/v1/messages", body.to_string())
    };
    let (_directory, replay) = recorded(&[request("1")]).await;
    let gateway = start_gateway(replay);
    let (path, body) = request("2");
    let answer = gateway.post(path, body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert!(answer.text().contains("2026-01-01"), "not the recorded answer: {}", answer.text());
}

#[tokio::test]
async fn error_responses_and_interrupted_answers_are_replayed() {
    let (_directory, replay) = recorded(&[messages("refuse"), messages("hang up")]).await;
    let gateway = start_gateway(replay);
    let refused = gateway.post("/v1/messages", prompt("refuse", true)).await;
    assert_eq!((refused.status.as_u16(), refused.json()["error"]["message"].as_str()), (429, Some("slow down")));
    let cut = gateway.post("/v1/messages", prompt("hang up", true)).await;
    assert!(cut.text().contains("event: error"), "{}", cut.text());
}

#[tokio::test]
async fn replay_miss_is_a_final_error_in_the_clients_api() {
    let chat = |text: &str| json!({"model": "m", "messages": [{"role": "user", "content": text}]}).to_string();
    let gemini = |text: &str| json!({"contents": [{"role": "user", "parts": [{"text": text}]}]}).to_string();
    let paths = ["/v1/messages", "/v1/chat/completions", "/v1beta/models/m:generateContent"];
    let body = |path: &str, text: &str| match path {
        "/v1/messages" => prompt(text, false),
        "/v1/chat/completions" => chat(text),
        _ => gemini(text),
    };
    let requests: Vec<_> = paths.iter().map(|path| (*path, body(path, "the first word"))).collect();
    let (_directory, replay) = recorded(&requests).await;
    let gateway = start_gateway(replay);
    for path in paths {
        let answer = gateway.post(path, body(path, "another word")).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(answer.headers["x-should-retry"], "false");
        assert_eq!(answer.headers["x-viv-code"], "replay_miss");
        let error = answer.json();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("--- recorded\n+++ requested now\n"), "{message}");
        assert!(message.contains(": the first word\n") && message.contains(": another word\n"), "{message}");
    }
    gateway.wait_for_event("upstream_error").await;
}
