//! Ledger entries of calls: the hold before a call, the charge after it, and budgets that are never exceeded.

use std::{
    io::{Read as _, Write as _},
    sync::Arc,
};

use gateway::{GatewayIdentity, ModelPrice, PriceTable, TokenRates, VendorConfig, VendorKind, VendorUpstream};
use http::StatusCode;
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource};
use secret::Secret;
use serde_json::json;
use store::{Journal, Ledger, LimitAmount, LimitScope, LimitWindow, UsageGrouping, UsageLimit};
use tokio::{io::AsyncWriteExt, task::JoinSet};

use crate::support::{
    stub_vendor::{Connection, StubVendor, http_event_stream, http_response},
    test_client::{TestClient, TestResponse, next_frame},
    test_gateway::{TEST_TIMEOUT, TestGateway, prompt},
    test_journal::JournalPause,
};

const KEY: &str = "sk-canary-0123456789";
/// Pico-dollars per input and output token.
const RATES: (i64, i64) = (3_000_000, 15_000_000);
/// Tokens that the gateway adds to the bytes of a request to bound the prompt tokens.
const ADDED_TOKENS: u64 = 4_096;
const ROUNDS: usize = 10;
const CALLERS: usize = 200;

fn answer(input_tokens: u64, output_tokens: u64) -> String {
    let usage = json!({"input_tokens": input_tokens, "output_tokens": output_tokens});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test",
        "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "usage": usage});
    http_response("200 OK", "application/json", &message.to_string())
}

fn cost(input_tokens: u64, output_tokens: u64) -> u64 {
    input_tokens * RATES.0.unsigned_abs() + output_tokens * RATES.1.unsigned_abs()
}

/// Returns the maximum cost of a request made by [`prompt`], which limits the answer to 100 tokens.
fn max_cost(body: &str) -> u64 {
    cost(body.len() as u64 + ADDED_TOKENS, 100)
}

fn prices() -> PriceTable {
    let price = ModelPrice::flat(TokenRates { input: RATES.0, output: RATES.1, ..TokenRates::default() });
    ["claude-test", "gpt-test", "gemini-test"]
        .into_iter()
        .fold(PriceTable::default(), |all, model| all.with_price(model, price.clone()))
}

fn start_gateway(vendor: &StubVendor, kind: VendorKind, change: impl FnOnce(&mut GatewayIdentity)) -> TestGateway {
    let mut config = VendorConfig::new("stub", kind, vendor.url());
    config.key = Some(Secret::new(KEY));
    TestGateway::with_identity(Arc::new(VendorUpstream::new(config).unwrap()), prices(), change)
}

fn budget(picos: u64) -> UsageLimit {
    UsageLimit {
        name: "budget_usd",
        scope: LimitScope::Session,
        window: LimitWindow::Ever,
        max: LimitAmount::Picos(picos),
    }
}

/// Checks that an error tells clients not to retry.
#[track_caller]
fn check_not_retryable(answer: &TestResponse, code: &str) {
    assert_eq!(answer.headers["x-should-retry"], "false");
    assert_eq!(answer.headers["x-viv-code"], code);
}

#[tokio::test]
async fn call_is_charged_with_the_vendors_token_counts() {
    let vendor = StubVendor::answering(answer(10, 4)).await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |_| {});
    assert_eq!(gateway.post("/v1/messages", prompt("x", false)).await.status, StatusCode::OK);
    gateway.wait_for_event("llm.call").await;
    let closed = gateway.close().await;
    for (by, name) in [
        (UsageGrouping::Account, "acme"),
        (UsageGrouping::User, "ann"),
        (UsageGrouping::Agent, "mock"),
        (UsageGrouping::Model, "claude-test"),
    ] {
        let rows = closed.ledger.usage(by, 0).unwrap();
        assert_eq!((rows.len(), rows[0].name.as_str(), rows[0].calls), (1, name, 1));
        assert_eq!((rows[0].spent_picos, rows[0].held_picos), (cost(10, 4), 0));
        assert_eq!((rows[0].usage.input_tokens, rows[0].usage.output_tokens), (10, 4));
    }
}

/// Returns a policy that allows every model, with these further keys of `models`.
fn model_policy(more: &str) -> Arc<EffectivePolicy> {
    let text = format!("version: 1\nmodels: {{allow: [\"*\"]{more}}}\n");
    let base = BaseLayer::read(&PolicySource::new("test", text)).unwrap();
    Arc::new(policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]))
}

/// Makes a call to a model without a price; the identity has this policy and these limits.
async fn call_without_price(policy: Arc<EffectivePolicy>, budgets: Vec<UsageLimit>) -> (TestResponse, TestGateway) {
    let vendor = StubVendor::answering(answer(10, 4)).await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |identity| {
        (identity.policy, identity.budgets) = (Some(policy), budgets);
    });
    let body = prompt("x", false).replace("claude-test", "my-model");
    assert!(body.contains("my-model"), "{body}");
    (gateway.post("/v1/messages", body).await, gateway)
}

fn token_limit(tokens: u64) -> UsageLimit {
    UsageLimit { name: "models.max_tokens", max: LimitAmount::Tokens(tokens), ..budget(0) }
}

#[tokio::test]
async fn model_without_a_price_is_limited_by_tokens_and_billed_as_unpriced() {
    // The dollars of the session's policy do not matter, because nobody knows the price.
    let limits = vec![budget(0), token_limit(100_000)];
    let (answered, gateway) = call_without_price(model_policy(", unpriced: allow"), limits).await;
    assert_eq!(answered.status, StatusCode::OK, "{answered:?}");
    let event = gateway.wait_for_event("llm.call").await;
    assert_eq!((&event["unpriced"], &event["cost_picos"]), (&json!("my-model"), &json!(0)));
    let closed = gateway.close().await;
    let row = closed.session_usage();
    assert_eq!((row.calls, row.unpriced, row.spent_picos, row.unknown), (1, 1, 0, 0));
    assert_eq!((row.usage.input_tokens, row.usage.output_tokens), (10, 4));
}

#[tokio::test]
async fn call_without_a_price_is_refused_above_the_token_limit() {
    let (answered, gateway) = call_without_price(model_policy(", unpriced: allow"), vec![token_limit(50)]).await;
    assert_eq!(answered.status, StatusCode::PAYMENT_REQUIRED, "{answered:?}");
    let event = gateway.wait_for_event("budget.exceeded").await;
    assert_eq!(event["limit"], "models.max_tokens");
    assert!(event["message"].as_str().unwrap().starts_with("token limit exceeded: the call could use "), "{event}");
}

#[tokio::test]
async fn model_without_a_price_is_refused_by_the_policy_and_by_dollar_budgets() {
    let refused = |answered: &TestResponse, reason: &str| {
        assert_eq!(answered.status, StatusCode::BAD_REQUEST, "{answered:?}");
        check_not_retryable(answered, "price_unknown");
        let text = answered.json().to_string();
        assert!(text.contains("model `my-model` has no known price, and ") && text.contains(reason), "{text}");
    };
    let (answered, _gateway) = call_without_price(model_policy(""), vec![token_limit(100_000)]).await;
    refused(&answered, "the policy denies such models (`models.unpriced`)");
    let of_key = UsageLimit { name: "budget", scope: LimitScope::Key, ..budget(1_000_000_000_000) };
    let (answered, _gateway) = call_without_price(model_policy(", unpriced: allow"), vec![of_key]).await;
    refused(&answered, "the dollar budget `budget` needs a price");
}

#[tokio::test]
async fn last_bytes_of_a_stream_are_sent_after_the_charge() {
    let start =
        r#"data: {"type":"message_start","message":{"id":"m","model":"claude-test","usage":{"input_tokens":10}}}"#;
    let end = r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}"#;
    let events = [start, "\n\n", end, "\n\n", r#"data: {"type":"message_stop"}"#, "\n\n"];
    let vendor = StubVendor::answering(http_event_stream(&events)).await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |_| {});
    let JournalPause { reached, resume } = gateway.journal.pause_before_call_end();
    let request = {
        let (body, token, address) = (prompt("x", true), &gateway.token, gateway.address);
        format!(
            "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nx-api-key: {token}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let mut client = std::net::TcpStream::connect(gateway.address).unwrap();
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let client = tokio::task::spawn_blocking(move || {
        client.write_all(request.as_bytes()).unwrap();
        reached.recv_timeout(TEST_TIMEOUT).unwrap();
        // All bytes sent before the call was recorded have arrived by now.
        client.set_nonblocking(true).unwrap();
        let mut early = [0; 4_096];
        let count = client.read(&mut early).unwrap_or_default();
        client.set_nonblocking(false).unwrap();
        resume.send(()).unwrap();
        let mut received = early[..count].to_vec();
        while !received.ends_with(b"0\r\n\r\n") {
            let count = client.read(&mut early).unwrap();
            assert!(count > 0, "the connection closed before the response was complete");
            received.extend_from_slice(&early[..count]);
        }
        (count, String::from_utf8(received).unwrap())
    });
    let (early, received) = client.await.unwrap();
    assert!(
        !received[..early].contains("message_stop") && received[early..].contains("message_stop"),
        "{early} bytes early: {received}"
    );
    let rows = gateway.ledger.usage(UsageGrouping::Session, 0).unwrap();
    assert_eq!((rows[0].spent_picos, rows[0].held_picos), (cost(10, 4), 0));
}

#[tokio::test]
async fn two_hundred_concurrent_callers_never_exceed_a_budget_for_ten_calls() {
    let body = prompt("x", false);
    for round in 0..ROUNDS {
        // In every other round a call costs exactly its hold, so that exactly ten calls fit.
        let tokens = if round % 2 == 0 { (body.len() as u64 + ADDED_TOKENS, 100) } else { (500, 20) };
        let vendor = StubVendor::answering(answer(tokens.0, tokens.1)).await;
        let limit = max_cost(&body) * 10 + max_cost(&body) / 2;
        let gateway =
            Arc::new(start_gateway(&vendor, VendorKind::Anthropic, |identity| identity.budgets = vec![budget(limit)]));
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (gateway, body) = (gateway.clone(), body.clone());
            callers.spawn(async move { gateway.post("/v1/messages", body).await.status });
        }
        let statuses = callers.join_all().await;
        let served = statuses.iter().filter(|status| **status == StatusCode::OK).count();
        let refused = statuses.iter().filter(|status| **status == StatusCode::PAYMENT_REQUIRED).count();
        assert_eq!(served + refused, CALLERS);
        assert_eq!(vendor.received().len(), served, "round {round}");
        let usage_row = Arc::into_inner(gateway).unwrap().close().await.session_usage();
        assert!(usage_row.spent_picos + usage_row.held_picos <= limit, "round {round}: {usage_row:?}");
        if round % 2 == 0 {
            assert_eq!((served, usage_row.spent_picos), (10, max_cost(&body) * 10), "round {round}");
        } else {
            assert!(served >= 10, "round {round}: {served}");
            assert_eq!(usage_row.spent_picos, cost(500, 20) * served as u64, "round {round}");
        }
    }
}

#[tokio::test]
async fn call_over_the_budget_is_rejected_in_the_clients_api_and_not_sent() {
    let vendor = StubVendor::answering(answer(10, 4)).await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |identity| identity.budgets = vec![budget(1_000)]);
    let paths = [
        ("/v1/messages", prompt("x", true), json!("billing_error")),
        ("/v1/chat/completions", r#"{"model":"gpt-test","messages":[]}"#.to_owned(), json!("insufficient_quota")),
        ("/v1/responses", r#"{"model":"gpt-test","input":"x"}"#.to_owned(), json!("insufficient_quota")),
        ("/v1beta/models/gemini-test:generateContent", "{}".to_owned(), json!("RESOURCE_EXHAUSTED")),
    ];
    for (path, body, kind) in paths {
        let answer = gateway.post(path, body).await;
        assert_eq!(answer.status, StatusCode::PAYMENT_REQUIRED, "{path}");
        check_not_retryable(&answer, "budget_exceeded");
        let error = &answer.json()["error"];
        assert!(error["type"] == kind || error["status"] == kind, "{error}");
        assert!(error["message"].as_str().unwrap().contains("`budget_usd` allows $0.000000001"), "{error}");
    }
    assert_eq!(gateway.wait_for_event("budget.exceeded").await["limit"], "budget_usd");
    assert!(vendor.received().is_empty());
    assert!(gateway.ledger.usage(UsageGrouping::Session, 0).unwrap().is_empty());
}

#[tokio::test]
async fn call_with_an_enormous_maximum_cost_is_rejected_without_a_budget() {
    let vendor = StubVendor::answering(answer(10, 4)).await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |_| {});
    let body = r#"{"model":"claude-test","max_tokens":16000000,"n":128,"messages":[]}"#;
    assert_eq!(gateway.post("/v1/messages", body).await.status, StatusCode::PAYMENT_REQUIRED);
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn model_not_allowed_by_the_policy_is_rejected_with_the_rule() {
    let base =
        BaseLayer::read(&PolicySource::new("team.yaml", "version: 1\nmodels:\n  allow: [\"claude-*\"]\n")).unwrap();
    let policy = policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]);
    let vendor = StubVendor::answering(answer(10, 4)).await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |identity| identity.policy = Some(Arc::new(policy)));
    assert_eq!(gateway.post("/v1/messages", prompt("x", false)).await.status, StatusCode::OK);
    let answer = gateway.post("/v1/chat/completions", r#"{"model":"gpt-test","messages":[]}"#).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    check_not_retryable(&answer, "policy_denied");
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "policy_denied");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("models.allow") && message.contains("team.yaml:3"), "{message}");
    assert_eq!(gateway.wait_for_event("error").await["code"], "policy_denied");
    assert_eq!(vendor.received().len(), 1);
}

#[tokio::test]
async fn scripted_calls_are_free_and_listed_in_the_ledger() {
    let gateway = TestGateway::with_script_and_budgets("  - answer: [text: ok]\n", vec![budget(0)]);
    assert_eq!(gateway.post("/v1/messages", prompt("x", true)).await.status, StatusCode::OK);
    assert_eq!(gateway.post("/v1/messages/count_tokens", prompt("x", false)).await.status, StatusCode::OK);
    let closed = gateway.close().await;
    let usage_row = closed.session_usage();
    assert_eq!((usage_row.calls, usage_row.spent_picos, usage_row.held_picos, usage_row.unknown), (2, 0, 0, 0));
}

#[tokio::test]
async fn client_that_leaves_is_charged_for_the_complete_response() {
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"claude-test\",\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n";
    let delta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":77}}\n\n";
    let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let vendor = StubVendor::answering(http_event_stream(&[start, delta, stop])).await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |_| {});
    let mut client = TestClient::connect(gateway.address).await;
    let mut body =
        client.send(gateway.request(http::Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    next_frame(&mut body).await.unwrap();
    drop((body, client));
    gateway.wait_for_event("llm.call").await;
    let closed = gateway.close().await;
    // Counts in a stream are totals so far: the last one is charged, not the sum.
    assert_eq!(closed.session_usage().spent_picos, cost(10, 77));
}

#[tokio::test]
async fn error_response_of_the_vendor_costs_nothing() {
    let refusal = r#"{"type":"error","error":{"type":"overloaded_error","message":"later"}}"#;
    let vendor = StubVendor::answering(http_response("529 Overloaded", "application/json", refusal)).await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |_| {});
    assert_eq!(gateway.post("/v1/messages", prompt("x", false)).await.status.as_u16(), 529);
    let closed = gateway.close().await;
    let usage_row = closed.session_usage();
    assert_eq!((usage_row.calls, usage_row.spent_picos, usage_row.held_picos, usage_row.unknown), (1, 0, 0, 0));
}

#[tokio::test]
async fn call_to_an_unreachable_upstream_costs_nothing() {
    let gone = StubVendor::answering("").await;
    let url = gone.url();
    drop(gone);
    let mut config = VendorConfig::new("stub", VendorKind::Anthropic, url);
    config.retries = 0;
    let gateway = TestGateway::with_identity(Arc::new(VendorUpstream::new(config).unwrap()), prices(), |_| {});
    assert_eq!(gateway.post("/v1/messages", prompt("x", false)).await.status, StatusCode::BAD_GATEWAY);
    let closed = gateway.close().await;
    assert_eq!((closed.session_usage().held_picos, closed.session_usage().unknown), (0, 0));
}

#[tokio::test]
async fn interrupted_response_keeps_its_hold_and_is_listed_as_unknown() {
    let start = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"claude-test\",\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n";
    let vendor = StubVendor::with_handler(move |_, mut connection: Box<dyn Connection>| async move {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        connection.write_all(format!("{head}{:x}\r\n{start}\r\n", start.len()).as_bytes()).await.ok()?;
        None
    })
    .await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |_| {});
    let body = prompt("x", true);
    gateway.post("/v1/messages", body.clone()).await;
    assert_eq!(gateway.wait_for_event("llm.call").await["cost_unknown"], true);
    let closed = gateway.close().await;
    let usage_row = closed.session_usage();
    assert_eq!((usage_row.spent_picos, usage_row.held_picos, usage_row.unknown), (0, max_cost(&body), 1));
    let unknown = &closed.unknown_calls()[0];
    assert_eq!((unknown.account.as_str(), unknown.model.as_str()), ("acme", "claude-test"));
    assert_eq!(unknown.reason.as_deref(), Some("the response is incomplete"));
}

#[tokio::test]
async fn response_without_token_counts_keeps_its_hold() {
    let message = r#"{"id":"m","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", message)).await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |_| {});
    let body = prompt("x", false);
    gateway.post("/v1/messages", body.clone()).await;
    let closed = gateway.close().await;
    assert_eq!((closed.session_usage().held_picos, closed.session_usage().unknown), (max_cost(&body), 1));
}

#[tokio::test]
async fn key_never_appears_in_the_journal_or_the_ledger() {
    let vendor = StubVendor::answering(http_response(
        "401 Unauthorized",
        "application/json",
        &format!("{{\"error\":\"{KEY}\"}}"),
    ))
    .await;
    let gateway = start_gateway(&vendor, VendorKind::Anthropic, |_| {});
    let answer = gateway.post("/v1/messages", prompt("x", false)).await;
    gateway.wait_for_event("llm.call").await;
    let closed = gateway.close().await;
    assert!(!answer.text().contains(KEY));
    let journal = closed.journal.after(0, usize::MAX).unwrap();
    assert!(!serde_json::to_string(&journal).unwrap().contains(KEY));
    assert!(!closed.ledger_bytes().windows(KEY.len()).any(|window| window == KEY.as_bytes()));
}
