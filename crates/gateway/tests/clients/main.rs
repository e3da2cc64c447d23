//! The vendors' Python SDKs against the gateway: calls work, and a spent budget is reported without a retry.
//!
//! An SDK that retries would hide a spent budget behind minutes of waiting, so the test counts the calls in the journal.
//! `cargo xtask install` installs the SDKs into the user's cache.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is its purpose")]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod support;

use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use gateway::{ModelPrice, PriceTable, TokenRates, VendorConfig, VendorKind, VendorUpstream};
use secret::Secret;
use serde_json::{Value, json};
use store::{LimitAmount, LimitScope, LimitWindow, UsageLimit};
use support::{
    stub_vendor::{Connection, ReceivedRequest, StubVendor, http_event_stream, http_response},
    test_gateway::TestGateway,
};
use tokio::{io::AsyncWriteExt, process::Command};

const KEY: &str = "sk-canary-0123456789";
const REQUIREMENTS: &str = include_str!("requirements.txt");
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `script` and checks how many calls were served and how many were rejected by the budget.
async fn check(script: &str, kind: VendorKind, served: usize, rejected: usize) {
    let vendor = StubVendor::with_handler(|request, mut connection: Box<dyn Connection>| async move {
        connection.write_all(answer(&request).as_bytes()).await.ok()?;
        Some(connection)
    })
    .await;
    let (good, spent) = (start_gateway(&vendor, kind, 1_000_000_000_000), start_gateway(&vendor, kind, 1));
    let url = |gateway: &TestGateway| format!("http://{}", gateway.address);
    let output = Command::new(python())
        .arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script))
        .args([url(&good), good.token.clone(), url(&spent), spent.token.clone()])
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(TEST_TIMEOUT, output).await.unwrap().unwrap();
    let output_text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{script}: {output_text}");
    assert!(!output_text.contains(KEY));
    let (good, spent) = (good.close().await, spent.close().await);
    assert_eq!(usize::try_from(good.session_usage().calls).unwrap(), served, "{script}");
    assert_eq!((good.session_usage().unknown, good.session_usage().held_picos), (0, 0), "{script}");
    assert!(good.session_usage().spent_picos > 0 && vendor.received().len() == served, "{script}");
    let rejections = spent.journal.event_types().iter().filter(|name| *name == "budget.exceeded").count();
    assert_eq!(rejections, rejected, "{script} retried a rejected call");
}

fn start_gateway(vendor: &StubVendor, kind: VendorKind, picos: u64) -> TestGateway {
    let mut config = VendorConfig::new("stub", kind, vendor.url());
    config.key = Some(Secret::new(KEY));
    let price = ModelPrice::flat(TokenRates { input: 3_000_000, output: 15_000_000, ..TokenRates::default() });
    let models = ["claude-test", "gpt-test", "gemini-test"].into_iter();
    let prices = models.fold(PriceTable::default(), |prices, model| prices.with_price(model, price.clone()));
    let budget = UsageLimit {
        name: "budget_usd",
        scope: LimitScope::Session,
        window: LimitWindow::Ever,
        max: LimitAmount::Picos(picos),
    };
    TestGateway::with_identity(Arc::new(VendorUpstream::new(config).unwrap()), prices, |identity| {
        identity.budgets = vec![budget];
    })
}

/// Returns the response of the vendor whose API the request uses.
fn answer(request: &ReceivedRequest) -> String {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let line = request.line();
    let stream = body["stream"] == true || line.contains(":streamGenerateContent");
    if line.contains("/chat/completions") {
        chat(stream)
    } else if line.contains("/responses") {
        http_response("200 OK", "application/json", &response().to_string())
    } else if line.contains("generateContent") || line.contains("streamGenerateContent") {
        gemini(stream)
    } else {
        messages(stream)
    }
}

fn messages(stream: bool) -> String {
    let usage = json!({"input_tokens": 10, "output_tokens": 4});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test",
        "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "stop_sequence": null, "usage": usage});
    if !stream {
        return http_response("200 OK", "application/json", &message.to_string());
    }
    let mut opening = message.clone();
    opening["content"] = json!([]);
    opening["stop_reason"] = Value::Null;
    events(&[
        json!({"type": "message_start", "message": opening}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {"output_tokens": 4}}),
        json!({"type": "message_stop"}),
    ])
}

/// Returns an event stream in which each event has its `type` as its name.
fn events(data: &[Value]) -> String {
    let events: Vec<String> =
        data.iter().map(|data| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())).collect();
    http_event_stream(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

fn chat(stream: bool) -> String {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14});
    let base = json!({"id": "c1", "created": 0, "model": "gpt-test"});
    let with = |rest: Value| {
        let mut all = base.clone();
        all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        all
    };
    if !stream {
        let choice = json!({"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}});
        let completion = with(json!({"object": "chat.completion", "choices": [choice], "usage": usage}));
        return http_response("200 OK", "application/json", &completion.to_string());
    }
    let chunk = |choices: Value, usage: &Value| {
        let chunk = with(json!({"object": "chat.completion.chunk", "choices": choices, "usage": usage}));
        format!("data: {chunk}\n\n")
    };
    let text = chunk(json!([{"index": 0, "delta": {"role": "assistant", "content": "hi"}}]), &Value::Null);
    let end = chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]), &Value::Null);
    http_event_stream(&[&text, &end, &chunk(json!([]), &usage), "data: [DONE]\n\n"])
}

fn response() -> Value {
    let content = json!([{"type": "output_text", "text": "hi", "annotations": []}]);
    json!({"id": "resp_1", "object": "response", "created_at": 0, "status": "completed", "model": "gpt-test",
        "output": [{"type": "message", "id": "m1", "status": "completed", "role": "assistant", "content": content}],
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 14}})
}

fn gemini(stream: bool) -> String {
    let content = json!({"role": "model", "parts": [{"text": "hi"}]});
    let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 4, "totalTokenCount": 14});
    let answer = json!({"candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage, "modelVersion": "gemini-test"});
    if stream {
        http_event_stream(&[&format!("data: {answer}\r\n\r\n")])
    } else {
        http_response("200 OK", "application/json", &answer.to_string())
    }
}

/// Returns the Python interpreter with the SDKs; `xtask` uses the same folder name.
fn python() -> PathBuf {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache");
    let folder = REQUIREMENTS.lines().map(|line| line.replace("==", "-")).collect::<Vec<_>>().join("-");
    let python = given.unwrap_or_else(home).join("viv-test").join(folder).join("bin/python");
    assert!(
        python.exists(),
        "the Python SDKs are not installed in {}\n  help: run `cargo xtask install`",
        python.display()
    );
    python
}

#[tokio::test]
async fn anthropic_sdk_works_and_does_not_retry_a_spent_budget() {
    check("anthropic_client.py", VendorKind::Anthropic, 2, 1).await;
}

#[tokio::test]
async fn openai_sdk_works_and_does_not_retry_a_spent_budget() {
    check("openai_client.py", VendorKind::Openai, 3, 2).await;
}

#[tokio::test]
async fn google_sdk_works_and_does_not_retry_a_spent_budget() {
    check("gemini_client.py", VendorKind::Gemini, 2, 1).await;
}
