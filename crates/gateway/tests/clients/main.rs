//! The vendors' own SDKs for Python against the gateway: served as by their vendor, and refused only once.
//!
//! A client that tries a refusal again would hide a spent budget behind minutes of waiting; how often each of
//! them called is counted in the journal. `cargo xtask install` puts the SDKs into the user's cache.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is its purpose")]

#[path = "../boundary/support.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod support;
#[path = "../boundary/vendor.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod vendor;

use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use gateway::{ModelPrice, PriceTable, TokenRates, VendorConfig, VendorKind, VendorUpstream};
use secret::Secret;
use serde_json::{Value, json};
use store::{LimitAmount, LimitScope, LimitWindow, UsageLimit};
use support::Desk;
use tokio::{io::AsyncWriteExt, process::Command};
use vendor::{Pipe, Received, StubVendor, chunked, whole};

const KEY: &str = "sk-canary-0123456789";
const REQUIREMENTS: &str = include_str!("requirements.txt");
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `script` and returns how many calls were served and how many were refused.
async fn check(script: &str, kind: VendorKind, served: usize, refused: usize) {
    let vendor = StubVendor::playing(|request, mut pipe: Box<dyn Pipe>| async move {
        pipe.write_all(answer(&request).as_bytes()).await.ok()?;
        Some(pipe)
    })
    .await;
    let (good, spent) = (desk(&vendor, kind, 1_000_000_000_000), desk(&vendor, kind, 1));
    let url = |desk: &Desk| format!("http://{}", desk.address);
    let output = Command::new(python())
        .arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script))
        .args([url(&good), good.token.clone(), url(&spent), spent.token.clone()])
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, output).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{script}: {said}");
    assert!(!said.contains(KEY));
    let (good, spent) = (good.close().await, spent.close().await);
    assert_eq!(usize::try_from(good.bill().calls).unwrap(), served, "{script}");
    assert_eq!((good.bill().unknown, good.bill().held_picos), (0, 0), "{script}");
    assert!(good.bill().spent_picos > 0 && vendor.received().len() == served, "{script}");
    let told = spent.notes.names().iter().filter(|name| *name == "budget.exceeded").count();
    assert_eq!(told, refused, "{script} tried a refusal again");
}

fn desk(vendor: &StubVendor, kind: VendorKind, picos: u64) -> Desk {
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
    Desk::with(Arc::new(VendorUpstream::new(config).unwrap()), prices, |identity| identity.budgets = vec![budget])
}

/// What the vendor of a request's path would say.
fn answer(request: &Received) -> String {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let line = request.line();
    let stream = body["stream"] == true || line.contains(":streamGenerateContent");
    if line.contains("/chat/completions") {
        chat(stream)
    } else if line.contains("/responses") {
        whole("200 OK", "application/json", &response().to_string())
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
        return whole("200 OK", "application/json", &message.to_string());
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

/// An event stream in which each event is named by its type.
fn events(data: &[Value]) -> String {
    let events: Vec<String> =
        data.iter().map(|data| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())).collect();
    chunked(&events.iter().map(String::as_str).collect::<Vec<_>>())
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
        return whole("200 OK", "application/json", &completion.to_string());
    }
    let chunk = |choices: Value, usage: &Value| {
        let chunk = with(json!({"object": "chat.completion.chunk", "choices": choices, "usage": usage}));
        format!("data: {chunk}\n\n")
    };
    let text = chunk(json!([{"index": 0, "delta": {"role": "assistant", "content": "hi"}}]), &Value::Null);
    let end = chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]), &Value::Null);
    chunked(&[&text, &end, &chunk(json!([]), &usage), "data: [DONE]\n\n"])
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
        chunked(&[&format!("data: {answer}\r\n\r\n")])
    } else {
        whole("200 OK", "application/json", &answer.to_string())
    }
}

/// The interpreter that has the SDKs; `xtask` names the folder the same way.
fn python() -> PathBuf {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache");
    let folder = REQUIREMENTS.lines().map(|line| line.replace("==", "-")).collect::<Vec<_>>().join("-");
    let python = given.unwrap_or_else(home).join("viv-test").join(folder).join("bin/python");
    assert!(python.exists(), "the SDKs are not in {}\n  help: cargo xtask install", python.display());
    python
}

#[tokio::test]
async fn the_anthropic_sdk_is_served_and_takes_no_for_an_answer() {
    check("anthropic_client.py", VendorKind::Anthropic, 2, 1).await;
}

#[tokio::test]
async fn the_openai_sdk_is_served_and_takes_no_for_an_answer() {
    check("openai_client.py", VendorKind::Openai, 3, 2).await;
}

#[tokio::test]
async fn the_google_sdk_is_served_and_takes_no_for_an_answer() {
    check("gemini_client.py", VendorKind::Gemini, 2, 1).await;
}
