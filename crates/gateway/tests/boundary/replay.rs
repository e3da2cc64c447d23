//! A recording in the place of a model: the same answers in the same order, and a loud no to everything else.

use std::sync::Arc;

use gateway::{GatewayIdentity, GatewayLimits, PriceTable, ReplayUpstream, RequestNormalizer, Upstream};
use http::StatusCode;
use protocol::SessionId;
use serde_json::{Value, json};
use store::{DataDir, FileBodyStore, FileJournal, SystemClock};
use tempfile::TempDir;

use crate::support::{Desk, prompt, scripted};

const RULES: &str = r#"
  - {when: {prompt: {contains: "twice"}}, times: 1, answer: [{text: "the first time"}]}
  - {when: {prompt: {contains: "twice"}}, answer: [{text: "the second time"}]}
  - {when: {prompt: {contains: "refuse"}}, error: {status: 429, message: "slow down"}}
  - {when: {prompt: {contains: "hang up"}}, answer: [{text: "And then"}, cut]}
  - {answer: [{text: "You said: ${prompt}"}]}
"#;

/// A data directory with a session in it that asked all of `requests`.
async fn recorded(requests: &[(&str, String)]) -> (TempDir, ReplayUpstream) {
    let place = tempfile::tempdir().unwrap();
    let (data, session) = (DataDir::open(place.path()).unwrap(), SessionId::new("s1").unwrap());
    let journal = FileJournal::open(data.journal(&session), session.clone(), Arc::new(SystemClock)).unwrap().journal;
    let (journal, bodies) = (Arc::new(journal), Arc::new(FileBodyStore::new(&data)));
    let desk = Desk::with(scripted(RULES), PriceTable::default(), |identity: &mut GatewayIdentity| {
        identity.journal = journal.clone();
        identity.bodies = bodies;
    });
    for (path, body) in requests {
        desk.post(path, body.clone()).await;
    }
    desk.attachment.close().await;
    let replay = ReplayUpstream::open(&data, &session, RequestNormalizer::new(&[]).unwrap()).unwrap();
    assert_eq!(replay.unused_calls(), requests.len());
    (place, replay)
}

fn before(replay: ReplayUpstream) -> Desk {
    Desk::before(Arc::new(replay), PriceTable::default(), GatewayLimits::default())
}

fn messages(text: &str) -> (&'static str, String) {
    ("/v1/messages", prompt(text, true))
}

#[tokio::test]
async fn equal_requests_are_answered_in_their_order_and_cost_nothing() {
    let (_place, replay) = recorded(&[messages("say it twice"), messages("other"), messages("say it twice")]).await;
    assert!(replay.is_free() && replay.models() == ["claude-test"]);
    let desk = before(replay);
    // No price is known for the model, and none is needed.
    for (words, expected) in [("twice", "the first time"), ("other", "You said"), ("twice", "the second time")] {
        let words = if words == "twice" { "say it twice" } else { words };
        let answer = desk.post("/v1/messages", prompt(words, true)).await;
        assert!(answer.status == StatusCode::OK && told(answer.text()).contains(expected), "{}", answer.text());
    }
    let again = desk.post("/v1/messages", prompt("say it twice", true)).await;
    assert_eq!(again.status, StatusCode::FORBIDDEN);
    assert!(again.text().contains("was recorded 2 times, and is asked for once more"), "{}", again.text());
    let bill = desk.close().await.bill();
    assert_eq!((bill.spent_picos, bill.held_picos, bill.unknown), (0, 0, 0));
}

/// The words of a stream.
fn told(stream: &str) -> String {
    let events = stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    events.filter_map(|event| event["delta"]["text"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn what_differs_in_every_run_makes_no_difference() {
    let said = |run: &str| {
        let words = format!("Today is 2026-01-0{run}. Look at /tmp/run-{run}/x, which took {run}.5 seconds.");
        let body = json!({"model": "m", "stream": false, "messages": [{"role": "user", "content": words}],
            "metadata": {"user_id": run}, "max_tokens": 5});
        ("/v1/messages", body.to_string())
    };
    let (_place, replay) = recorded(&[said("1")]).await;
    let desk = before(replay);
    let (path, body) = said("2");
    let answer = desk.post(path, body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert!(answer.text().contains("2026-01-01"), "the recorded answer: {}", answer.text());
}

#[tokio::test]
async fn refusals_and_broken_answers_are_replayed_as_they_were() {
    let (_place, replay) = recorded(&[messages("refuse"), messages("hang up")]).await;
    let desk = before(replay);
    let refused = desk.post("/v1/messages", prompt("refuse", true)).await;
    assert_eq!((refused.status.as_u16(), refused.json()["error"]["message"].as_str()), (429, Some("slow down")));
    let cut = desk.post("/v1/messages", prompt("hang up", true)).await;
    assert!(cut.text().contains("event: error"), "{}", cut.text());
}

#[tokio::test]
async fn a_miss_is_an_error_of_the_callers_api_that_nobody_tries_again() {
    let chat = |text: &str| json!({"model": "m", "messages": [{"role": "user", "content": text}]}).to_string();
    let gemini = |text: &str| json!({"contents": [{"role": "user", "parts": [{"text": text}]}]}).to_string();
    let paths = ["/v1/messages", "/v1/chat/completions", "/v1beta/models/m:generateContent"];
    let body = |path: &str, text: &str| match path {
        "/v1/messages" => prompt(text, false),
        "/v1/chat/completions" => chat(text),
        _ => gemini(text),
    };
    let requests: Vec<_> = paths.iter().map(|path| (*path, body(path, "the first word"))).collect();
    let (_place, replay) = recorded(&requests).await;
    let desk = before(replay);
    for path in paths {
        let answer = desk.post(path, body(path, "another word")).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(answer.headers["x-should-retry"], "false");
        assert_eq!(answer.headers["x-viv-code"], "replay_miss");
        let told = answer.json();
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains("--- recorded\n+++ asked for now\n"), "{message}");
        assert!(message.contains(": the first word\n") && message.contains(": another word\n"), "{message}");
    }
    desk.event("upstream_error").await;
}
