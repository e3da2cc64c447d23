//! Holds that follow a stream, calls that wait for held money, and calls that are cancelled.

mod dear_calls;

use std::{sync::Arc, time::Duration};

use gateway::{
    GatewayIdentity, HiddenReasoning, ModelPrice, PriceTable, TokenRates, TurnGuard, TurnTracker, VendorConfig,
    VendorKind, VendorUpstream,
};
use http::StatusCode;
use protocol::TurnId;
use serde_json::{Value, json};
use store::{Ledger, LimitAmount, LimitScope, LimitWindow, UsageGrouping, UsageLimit};
use testkit::wait_until_async;
use tokio::{io::AsyncWriteExt, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::support::{
    stub_vendor::{Connection, StubVendor, http_response},
    test_client::{TestClient, next_frame},
    test_gateway::TestGateway,
};

/// Pico-dollars per input and output token.
const RATES: (u64, u64) = (1_000, 10_000);
/// The tokens that a stream holds at first, and by which its hold grows.
const FIRST: u64 = 8_192;
/// Tokens that the gateway adds to the bytes of a request.
const ADDED_TOKENS: u64 = 4_096;

fn prices() -> PriceTable {
    let rates = TokenRates { input: 1_000, output: 10_000, ..TokenRates::default() };
    let dear = TokenRates { input: 2_000, output: 50_000, ..TokenRates::default() };
    let price = ModelPrice::flat(rates).with_max_output_tokens(128_000).with_reasoning(HiddenReasoning::Asked);
    PriceTable::default()
        .with_price("claude-test", price.clone().with_search_picos(7_000_000))
        .with_price("gpt-test", price.clone().with_service("priority", dear))
        .with_price("gpt-thinks", price.with_reasoning(HiddenReasoning::Always))
        .with_price("dear", ModelPrice::flat(dear))
}

fn start(vendor: &StubVendor, kind: VendorKind, change: impl FnOnce(&mut GatewayIdentity)) -> TestGateway {
    let config = VendorConfig::new("stub", kind, vendor.url());
    TestGateway::with_identity(Arc::new(VendorUpstream::new(config).unwrap()), prices(), change)
}

fn budget(picos: u64) -> Vec<UsageLimit> {
    let max = LimitAmount::Picos(picos);
    vec![UsageLimit { name: "budget_usd", scope: LimitScope::Session, window: LimitWindow::Ever, max }]
}

fn message(fields: &Value) -> String {
    let mut body = json!({"model": "claude-test", "max_tokens": 128_000, "stream": true,
        "messages": [{"role": "user", "content": "x"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body.to_string()
}

/// The cost of the prompt of `body` as it is held.
fn prompt_cost(body: &str) -> u64 {
    (body.len() as u64 + ADDED_TOKENS) * RATES.0
}

/// Returns the amount held for the session now.
fn held(gateway: &TestGateway) -> u64 {
    gateway.ledger.usage(UsageGrouping::Session, 0).unwrap().first().map_or(0, |row| row.held_picos)
}

/// Returns the number of letters of the answer in a frame.
fn letters(frame: &[u8]) -> usize {
    String::from_utf8_lossy(frame).matches('Q').count()
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn event(data: &Value) -> String {
    chunk(&format!("data: {data}\n\n"))
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn message_start(input_tokens: u64) -> String {
    event(&json!({"type": "message_start", "message": {"id": "m", "model": "claude-test",
        "usage": {"input_tokens": input_tokens, "output_tokens": 1}}}))
}

fn delta(text: &str) -> String {
    event(&json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}))
}

fn message_end(output_tokens: u64) -> String {
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": output_tokens}});
    [event(&delta), event(&json!({"type": "message_stop"})), "0\r\n\r\n".to_owned()].concat()
}

/// A vendor that writes deltas of a thousand letters: as many as the test allows, then an end if it says so. Tells
/// whether the gateway closed the connection.
struct PacedVendor {
    vendor: StubVendor,
    allowed: watch::Sender<usize>,
    closed: watch::Receiver<bool>,
}

/// The number that lets a paced vendor end its stream.
const END: usize = usize::MAX;

impl PacedVendor {
    async fn start() -> Self {
        let (allowed, allowance) = watch::channel(0);
        let (closing, closed) = watch::channel(false);
        let closing = Arc::new(closing);
        let vendor = StubVendor::with_handler(move |_, mut connection: Box<dyn Connection>| {
            let (mut allowance, closing) = (allowance.clone(), closing.clone());
            async move {
                connection.write_all(format!("{HEAD}{}", message_start(10)).as_bytes()).await.ok()?;
                let mut sent = 0;
                loop {
                    let allowed = *allowance.borrow_and_update();
                    if allowed == END {
                        connection.write_all(message_end(sent * 250).as_bytes()).await.ok()?;
                        return Some(connection);
                    }
                    while sent < allowed as u64 {
                        if connection.write_all(delta(&"Q".repeat(1_000)).as_bytes()).await.is_err() {
                            closing.send_replace(true);
                            return None;
                        }
                        sent += 1;
                    }
                    let mut byte = [0];
                    tokio::select! {
                        changed = allowance.changed() => changed.ok()?,
                        _ = tokio::io::AsyncReadExt::read(&mut connection, &mut byte) => {
                            closing.send_replace(true);
                            return None;
                        }
                    }
                }
            }
        })
        .await;
        Self { vendor, allowed, closed }
    }
}

#[tokio::test]
async fn hold_of_a_stream_begins_small_and_grows_ahead_of_it() {
    let paced = PacedVendor::start().await;
    let gateway = start(&paced.vendor, VendorKind::Anthropic, |_| {});
    let body = message(&json!({}));
    let mut client = TestClient::connect(gateway.address).await;
    let request = gateway.request(http::Method::POST, "/v1/messages", body.clone());
    let mut stream = client.send(request).await.into_body();
    next_frame(&mut stream).await.unwrap();
    assert_eq!(held(&gateway), prompt_cost(&body) + FIRST * RATES.1);
    let mut shown = 0;
    for allowed in [3, 9, 30] {
        paced.allowed.send_replace(allowed);
        while shown < allowed * 1_000 {
            let frame = next_frame(&mut stream).await.unwrap();
            shown += letters(&frame);
            let covered = (held(&gateway) - prompt_cost(&body)) / RATES.1;
            assert!(covered >= shown as u64, "{covered} tokens are held for {shown} shown bytes");
        }
    }
    paced.allowed.send_replace(END);
    while next_frame(&mut stream).await.is_some() {}
    let row = gateway.close().await.session_usage();
    assert_eq!((row.spent_picos, row.held_picos), (10 * RATES.0 + 30 * 250 * RATES.1, 0));
}

#[tokio::test]
async fn stream_that_outgrows_the_budget_is_cancelled_and_charged() {
    let paced = PacedVendor::start().await;
    let body = message(&json!({}));
    // Room for the first hold and for 3,000 tokens more.
    let limit = prompt_cost(&body) + (FIRST + 3_000) * RATES.1;
    let gateway = start(&paced.vendor, VendorKind::Anthropic, |identity| identity.budgets = budget(limit));
    paced.allowed.send_replace(64);
    let answer = gateway.post("/v1/messages", body).await;
    let text = answer.text();
    let last = text.rsplit("event: error\ndata: ").next().unwrap();
    let error: Value = serde_json::from_str(last.trim()).unwrap();
    assert_eq!(error["error"]["type"], "billing_error", "{error}");
    let mut closed = paced.closed.clone();
    closed.wait_for(|closed| *closed).await.unwrap();
    let shown = text.matches('Q').count() as u64;
    // All of the stream was there to be read, and no byte was forwarded that the hold did not cover.
    assert!((8_000..=FIRST + 3_000).contains(&shown), "{shown} bytes were shown");
    let call = gateway.wait_for_event("llm.call").await;
    assert_eq!(call["estimated"], true);
    let row = gateway.close().await.session_usage();
    assert_eq!((row.held_picos, row.unknown), (0, 0));
    assert!(row.spent_picos <= limit && row.spent_picos >= shown / 4 * RATES.1, "{row:?}");
}

#[tokio::test]
async fn hidden_reasoning_and_documents_are_held_in_full() {
    let vendor = StubVendor::with_handler(|_, _| std::future::pending()).await;
    let full = |body: &str| prompt_cost(body) + 128_000 * RATES.1;
    for (path, body) in [
        ("/v1/messages", message(&json!({"stream": false}))),
        ("/v1/messages", message(&json!({"thinking": {"type": "adaptive"}}))),
        ("/v1/messages", message(&json!({"max_tokens": -1, "stream": false}))),
        ("/v1/messages", message(&json!({"max_tokens": 0.5, "stream": false}))),
        ("/v1/chat/completions", message(&json!({"model": "gpt-thinks"}))),
        ("/v1/chat/completions", message(&json!({"model": "gpt-test", "reasoning_effort": "low"}))),
    ] {
        let kind = if path == "/v1/messages" { VendorKind::Anthropic } else { VendorKind::Openai };
        let gateway = start(&vendor, kind, |_| {});
        let mut client = TestClient::connect(gateway.address).await;
        let call = tokio::spawn({
            let request = gateway.request(http::Method::POST, path, body.clone());
            async move { client.send(request).await.status() }
        });
        wait_until_async("the call is held", || async { held(&gateway) > 0 }).await;
        assert_eq!(held(&gateway), full(&body), "{body}");
        call.abort();
    }
}

#[tokio::test]
async fn call_waits_for_held_money_and_is_then_served() {
    let paced = PacedVendor::start().await;
    let body = message(&json!({}));
    let one = prompt_cost(&body) + FIRST * RATES.1;
    let gateway = start(&paced.vendor, VendorKind::Anthropic, |identity| identity.budgets = budget(one * 3 / 2));
    let mut first = TestClient::connect(gateway.address).await;
    let request = || gateway.request(http::Method::POST, "/v1/messages", body.clone());
    let mut stream = first.send(request()).await.into_body();
    next_frame(&mut stream).await.unwrap();
    let mut second = TestClient::connect(gateway.address).await;
    let waiting = tokio::spawn({
        let request = request();
        async move { second.send(request).await.status() }
    });
    // A third client that leaves while it waits is never sent.
    let mut third = TestClient::connect(gateway.address).await;
    let leaving = tokio::spawn({
        let request = request();
        async move { third.send(request).await.status() }
    });
    tokio::task::yield_now().await;
    leaving.abort();
    paced.allowed.send_replace(END);
    while next_frame(&mut stream).await.is_some() {}
    assert_eq!(waiting.await.unwrap(), StatusCode::OK);
    let row = gateway.close().await.session_usage();
    assert_eq!((row.held_picos, row.unknown), (0, 0), "{row:?}");
}

#[tokio::test]
async fn held_money_is_a_retryable_error_and_spent_money_is_not() {
    let paced = PacedVendor::start().await;
    let body = message(&json!({}));
    let one = prompt_cost(&body) + FIRST * RATES.1;
    let gateway = start(&paced.vendor, VendorKind::Anthropic, |identity| {
        identity.budgets = budget(one * 3 / 2);
        identity.limits.held_wait = Duration::from_millis(20);
    });
    let mut first = TestClient::connect(gateway.address).await;
    let request = gateway.request(http::Method::POST, "/v1/messages", body.clone());
    let mut stream = first.send(request).await.into_body();
    next_frame(&mut stream).await.unwrap();
    let answer = gateway.post("/v1/messages", body.clone()).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        (&answer.headers["retry-after"], &answer.headers["x-viv-code"]),
        (&"5".parse().unwrap(), &"budget_held".parse().unwrap())
    );
    assert!(!answer.headers.contains_key("x-should-retry"));
    assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
    // The budget alone would not allow this call.
    let larger = message(&json!({"stream": false}));
    assert_eq!(gateway.post("/v1/messages", larger).await.status, StatusCode::PAYMENT_REQUIRED);
}

/// A tracker of one turn that can be interrupted.
struct InterruptibleTurn(TaskTracker, CancellationToken);

impl TurnTracker for InterruptibleTurn {
    fn join(&self) -> Option<TurnGuard> {
        let turn = TurnId::new("trn_1").unwrap();
        Some(TurnGuard::new(turn, self.0.token()).with_interrupt(self.1.clone()))
    }
}

#[tokio::test]
async fn interrupt_cancels_the_call_of_a_client_that_left() {
    let paced = PacedVendor::start().await;
    let interrupt = CancellationToken::new();
    let turn = Arc::new(InterruptibleTurn(TaskTracker::new(), interrupt.clone()));
    let gateway = start(&paced.vendor, VendorKind::Anthropic, |identity| identity.turn = turn);
    let mut client = TestClient::connect(gateway.address).await;
    let request = gateway.request(http::Method::POST, "/v1/messages", message(&json!({})));
    let mut stream = client.send(request).await.into_body();
    paced.allowed.send_replace(2);
    let mut shown = 0;
    while shown < 2_000 {
        shown += letters(&next_frame(&mut stream).await.unwrap());
    }
    interrupt.cancel();
    drop((stream, client));
    paced.closed.clone().wait_for(|closed| *closed).await.unwrap();
    gateway.wait_for_event("llm.call").await;
    let row = gateway.close().await.session_usage();
    assert_eq!((row.held_picos, row.unknown), (0, 0));
    // At least what the vendor counted so far, at most one token for each byte.
    let output = (row.spent_picos - 10 * RATES.0) / RATES.1;
    assert!((500..=2_400).contains(&output), "{output} tokens");
}

#[tokio::test]
async fn interrupt_ends_the_stream_of_a_client_that_stays() {
    let paced = PacedVendor::start().await;
    let interrupt = CancellationToken::new();
    let turn = Arc::new(InterruptibleTurn(TaskTracker::new(), interrupt.clone()));
    let gateway = start(&paced.vendor, VendorKind::Anthropic, |identity| identity.turn = turn);
    let mut client = TestClient::connect(gateway.address).await;
    let request = gateway.request(http::Method::POST, "/v1/messages", message(&json!({})));
    let mut stream = client.send(request).await.into_body();
    interrupt.cancel();
    let mut text = Vec::new();
    while let Some(frame) = next_frame(&mut stream).await {
        text.extend_from_slice(&frame);
    }
    assert!(String::from_utf8_lossy(&text).contains("the turn was interrupted"));
    paced.closed.clone().wait_for(|closed| *closed).await.unwrap();
    assert_eq!(gateway.close().await.session_usage().held_picos, 0);
}

#[tokio::test]
async fn answer_of_a_dearer_model_is_charged_as_that_model() {
    let answer = |model: &str, tier: &str| {
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 4});
        let body = json!({"object": "chat.completion", "model": model, "service_tier": tier, "usage": usage,
            "choices": [{"finish_reason": "stop", "message": {"content": "hi"}}]});
        http_response("200 OK", "application/json", &body.to_string())
    };
    let body = json!({"model": "gpt-test", "max_tokens": 100, "messages": []}).to_string();
    let (cheap, dear) = (10 * 1_000 + 4 * 10_000, 10 * 2_000 + 4 * 50_000);
    for (model, tier, spent, unknown) in [
        ("gpt-test-2026-01-01", "default", cheap, 0),
        ("dear", "default", dear, 0),
        ("gpt-test", "priority", dear, 0),
        ("never-heard-of", "default", 0, 1),
    ] {
        let vendor = StubVendor::answering(answer(model, tier)).await;
        let gateway = start(&vendor, VendorKind::Openai, |_| {});
        assert_eq!(gateway.post("/v1/chat/completions", body.clone()).await.status, StatusCode::OK);
        let row = gateway.close().await.session_usage();
        assert_eq!((row.spent_picos, row.unknown), (spent, unknown), "{model} {tier}");
        assert_eq!(row.held_picos > 0, unknown == 1);
    }
}

#[tokio::test]
async fn unpriced_fields_are_refused_by_name_in_the_clients_api() {
    let vendor = StubVendor::answering("").await;
    let gateway = start(&vendor, VendorKind::Openai, |_| {});
    for (field, value) in [
        ("models", json!(["dear"])),
        ("fallbacks", json!(["dear"])),
        ("service_tier", json!("flex")),
        ("extra_body", json!({"model": "dear"})),
        ("tools", json!([{"type": "image_generation"}])),
        ("n", json!(1_000)),
    ] {
        let mut body = json!({"model": "gpt-test", "messages": []});
        body[field] = value;
        let answer = gateway.post("/v1/chat/completions", body.to_string()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{field}");
        let error = &answer.json()["error"];
        assert_eq!((&error["param"], &error["type"]), (&json!(field), &json!("invalid_request_error")));
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn searches_of_the_vendor_are_held_and_charged() {
    let usage = json!({"input_tokens": 10, "output_tokens": 4, "server_tool_use": {"web_search_requests": 3}});
    let message =
        json!({"type": "message", "model": "claude-test", "content": [], "stop_reason": "end_turn", "usage": usage});
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", &message.to_string())).await;
    let gateway = start(&vendor, VendorKind::Anthropic, |_| {});
    let body = json!({"model": "claude-test", "max_tokens": 100, "messages": [],
        "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 5}]});
    assert_eq!(gateway.post("/v1/messages", body.to_string()).await.status, StatusCode::OK);
    let row = gateway.close().await.session_usage();
    assert_eq!(row.spent_picos, 10 * RATES.0 + 4 * RATES.1 + 3 * 7_000_000);
}
