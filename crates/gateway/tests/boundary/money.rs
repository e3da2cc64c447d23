//! What a call does to the ledger: held before it is sent, charged as it was counted, never past a limit.

use std::{
    io::{Read as _, Write as _},
    sync::Arc,
};

use gateway::{GatewayIdentity, ModelPrice, PriceTable, TokenRates, VendorConfig, VendorKind, VendorUpstream};
use http::StatusCode;
use policy::{BaseLayer, CeilingLayer, PolicySource};
use secret::Secret;
use serde_json::json;
use store::{Journal, Ledger, LimitAmount, LimitScope, LimitWindow, UsageGrouping, UsageLimit};
use tokio::{io::AsyncWriteExt, task::JoinSet};

use crate::{
    support::{Answer, Client, Desk, PATIENCE, Pause, next_frame, prompt},
    vendor::{Pipe, StubVendor, chunked, whole},
};

const KEY: &str = "sk-canary-0123456789";
/// Pico-dollars a token, in and out.
const RATES: (i64, i64) = (3_000_000, 15_000_000);
/// What the gateway adds to the bytes of a request when it bounds the prompt.
const ADDED_TOKENS: u64 = 4_096;
const ROUNDS: usize = 10;
const CALLERS: usize = 200;

fn answer(input_tokens: u64, output_tokens: u64) -> String {
    let usage = json!({"input_tokens": input_tokens, "output_tokens": output_tokens});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test",
        "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "usage": usage});
    whole("200 OK", "application/json", &message.to_string())
}

fn cost(input_tokens: u64, output_tokens: u64) -> u64 {
    input_tokens * RATES.0.unsigned_abs() + output_tokens * RATES.1.unsigned_abs()
}

/// The most a prompt of [`prompt`] can cost: it asks for at most 100 tokens.
fn most(body: &str) -> u64 {
    cost(body.len() as u64 + ADDED_TOKENS, 100)
}

fn prices() -> PriceTable {
    let price = ModelPrice::flat(TokenRates { input: RATES.0, output: RATES.1, ..TokenRates::default() });
    ["claude-test", "gpt-test", "gemini-test"]
        .into_iter()
        .fold(PriceTable::default(), |all, model| all.with_price(model, price.clone()))
}

fn desk(vendor: &StubVendor, kind: VendorKind, change: impl FnOnce(&mut GatewayIdentity)) -> Desk {
    let mut config = VendorConfig::new("stub", kind, vendor.url());
    config.key = Some(Secret::new(KEY));
    Desk::with(Arc::new(VendorUpstream::new(config).unwrap()), prices(), change)
}

fn budget(picos: u64) -> UsageLimit {
    UsageLimit {
        name: "budget_usd",
        scope: LimitScope::Session,
        window: LimitWindow::Ever,
        max: LimitAmount::Picos(picos),
    }
}

/// A refusal that no client tries again.
#[track_caller]
fn check_final(answer: &Answer, code: &str) {
    assert_eq!(answer.headers["x-should-retry"], "false");
    assert_eq!(answer.headers["x-viv-code"], code);
}

#[tokio::test]
async fn a_call_is_charged_to_its_account_as_the_vendor_counted_it() {
    let vendor = StubVendor::saying(answer(10, 4)).await;
    let desk = desk(&vendor, VendorKind::Anthropic, |_| {});
    assert_eq!(desk.post("/v1/messages", prompt("x", false)).await.status, StatusCode::OK);
    desk.event("llm.call").await;
    let books = desk.close().await;
    for (by, name) in [
        (UsageGrouping::Account, "acme"),
        (UsageGrouping::User, "ann"),
        (UsageGrouping::Agent, "mock"),
        (UsageGrouping::Model, "claude-test"),
    ] {
        let rows = books.ledger.usage(by, 0).unwrap();
        assert_eq!((rows.len(), rows[0].name.as_str(), rows[0].calls), (1, name, 1));
        assert_eq!((rows[0].spent_picos, rows[0].held_picos), (cost(10, 4), 0));
        assert_eq!((rows[0].usage.input_tokens, rows[0].usage.output_tokens), (10, 4));
    }
}

#[tokio::test]
async fn the_last_bytes_of_a_stream_leave_when_it_is_charged() {
    let start =
        r#"data: {"type":"message_start","message":{"id":"m","model":"claude-test","usage":{"input_tokens":10}}}"#;
    let end = r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}"#;
    let events = [start, "\n\n", end, "\n\n", r#"data: {"type":"message_stop"}"#, "\n\n"];
    let vendor = StubVendor::saying(chunked(&events)).await;
    let desk = desk(&vendor, VendorKind::Anthropic, |_| {});
    let Pause { reached, go } = desk.notes.pause_at_the_end();
    let request = {
        let (body, token, address) = (prompt("x", true), &desk.token, desk.address);
        format!(
            "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nx-api-key: {token}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let mut client = std::net::TcpStream::connect(desk.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = tokio::task::spawn_blocking(move || {
        client.write_all(request.as_bytes()).unwrap();
        reached.recv_timeout(PATIENCE).unwrap();
        // Whatever was sent before the call is on record lies here by now.
        client.set_nonblocking(true).unwrap();
        let mut early = [0; 4_096];
        let count = client.read(&mut early).unwrap_or_default();
        client.set_nonblocking(false).unwrap();
        go.send(()).unwrap();
        let mut got = early[..count].to_vec();
        while !got.ends_with(b"0\r\n\r\n") {
            let count = client.read(&mut early).unwrap();
            assert!(count > 0, "the connection ended in mid-answer");
            got.extend_from_slice(&early[..count]);
        }
        (count, String::from_utf8(got).unwrap())
    });
    let (early, got) = client.await.unwrap();
    assert!(!got[..early].contains("message_stop") && got[early..].contains("message_stop"), "{early} of {got}");
    let rows = desk.ledger.usage(UsageGrouping::Session, 0).unwrap();
    assert_eq!((rows[0].spent_picos, rows[0].held_picos), (cost(10, 4), 0));
}

#[tokio::test]
async fn two_hundred_callers_never_pass_a_budget_for_ten() {
    let body = prompt("x", false);
    for round in 0..ROUNDS {
        // In every other round calls cost as much as was held for them, so that exactly ten fit.
        let tokens = if round % 2 == 0 { (body.len() as u64 + ADDED_TOKENS, 100) } else { (500, 20) };
        let vendor = StubVendor::saying(answer(tokens.0, tokens.1)).await;
        let limit = most(&body) * 10 + most(&body) / 2;
        let desk = Arc::new(desk(&vendor, VendorKind::Anthropic, |identity| identity.budgets = vec![budget(limit)]));
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (desk, body) = (desk.clone(), body.clone());
            callers.spawn(async move { desk.post("/v1/messages", body).await.status });
        }
        let statuses = callers.join_all().await;
        let served = statuses.iter().filter(|status| **status == StatusCode::OK).count();
        let refused = statuses.iter().filter(|status| **status == StatusCode::PAYMENT_REQUIRED).count();
        assert_eq!(served + refused, CALLERS);
        assert_eq!(vendor.received().len(), served, "round {round}");
        let bill = Arc::into_inner(desk).unwrap().close().await.bill();
        assert!(bill.spent_picos + bill.held_picos <= limit, "round {round}: {bill:?}");
        if round % 2 == 0 {
            assert_eq!((served, bill.spent_picos), (10, most(&body) * 10), "round {round}");
        } else {
            assert!(served >= 10, "round {round}: {served}");
            assert_eq!(bill.spent_picos, cost(500, 20) * served as u64, "round {round}");
        }
    }
}

#[tokio::test]
async fn a_call_past_the_budget_is_refused_in_the_callers_words_and_sent_to_nobody() {
    let vendor = StubVendor::saying(answer(10, 4)).await;
    let desk = desk(&vendor, VendorKind::Anthropic, |identity| identity.budgets = vec![budget(1_000)]);
    let paths = [
        ("/v1/messages", prompt("x", true), json!("billing_error")),
        ("/v1/chat/completions", r#"{"model":"gpt-test","messages":[]}"#.to_owned(), json!("insufficient_quota")),
        ("/v1/responses", r#"{"model":"gpt-test","input":"x"}"#.to_owned(), json!("insufficient_quota")),
        ("/v1beta/models/gemini-test:generateContent", "{}".to_owned(), json!("RESOURCE_EXHAUSTED")),
    ];
    for (path, body, kind) in paths {
        let answer = desk.post(path, body).await;
        assert_eq!(answer.status, StatusCode::PAYMENT_REQUIRED, "{path}");
        check_final(&answer, "budget_exceeded");
        let error = &answer.json()["error"];
        assert!(error["type"] == kind || error["status"] == kind, "{error}");
        assert!(error["message"].as_str().unwrap().contains("`budget_usd` allows $0.000000001"), "{error}");
    }
    assert_eq!(desk.event("budget.exceeded").await["limit"], "budget_usd");
    assert!(vendor.received().is_empty());
    assert!(desk.ledger.usage(UsageGrouping::Session, 0).unwrap().is_empty());
}

#[tokio::test]
async fn a_call_that_could_cost_any_sum_is_refused_whatever_the_budget() {
    let vendor = StubVendor::saying(answer(10, 4)).await;
    let desk = desk(&vendor, VendorKind::Anthropic, |_| {});
    let body = r#"{"model":"claude-test","max_tokens":1e18,"messages":[]}"#;
    assert_eq!(desk.post("/v1/messages", body).await.status, StatusCode::PAYMENT_REQUIRED);
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn a_model_the_policy_does_not_name_is_refused_with_the_rule() {
    let base =
        BaseLayer::read(&PolicySource::new("team.yaml", "version: 1\nmodels:\n  allow: [\"claude-*\"]\n")).unwrap();
    let policy = policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]);
    let vendor = StubVendor::saying(answer(10, 4)).await;
    let desk = desk(&vendor, VendorKind::Anthropic, |identity| identity.policy = Some(Arc::new(policy)));
    assert_eq!(desk.post("/v1/messages", prompt("x", false)).await.status, StatusCode::OK);
    let answer = desk.post("/v1/chat/completions", r#"{"model":"gpt-test","messages":[]}"#).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    check_final(&answer, "policy_denied");
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "policy_denied");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("models.allow") && message.contains("team.yaml:3"), "{message}");
    assert_eq!(desk.event("error").await["code"], "policy_denied");
    assert_eq!(vendor.received().len(), 1);
}

#[tokio::test]
async fn a_script_is_free_and_on_the_bill_all_the_same() {
    let desk = Desk::budgeted("  - answer: [text: ok]\n", vec![budget(0)]);
    assert_eq!(desk.post("/v1/messages", prompt("x", true)).await.status, StatusCode::OK);
    assert_eq!(desk.post("/v1/messages/count_tokens", prompt("x", false)).await.status, StatusCode::OK);
    let books = desk.close().await;
    let bill = books.bill();
    assert_eq!((bill.calls, bill.spent_picos, bill.held_picos, bill.unknown), (2, 0, 0, 0));
}

#[tokio::test]
async fn a_client_that_leaves_is_charged_for_the_whole_answer() {
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"claude-test\",\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n";
    let delta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":77}}\n\n";
    let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let vendor = StubVendor::saying(chunked(&[start, delta, stop])).await;
    let desk = desk(&vendor, VendorKind::Anthropic, |_| {});
    let mut client = Client::connect(desk.address).await;
    let mut body = client.send(desk.request(http::Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    next_frame(&mut body).await.unwrap();
    drop((body, client));
    desk.event("llm.call").await;
    let books = desk.close().await;
    // Counts in a stream are totals so far: the last one stands, nothing is added up.
    assert_eq!(books.bill().spent_picos, cost(10, 77));
}

#[tokio::test]
async fn a_refusal_of_the_vendor_costs_nothing() {
    let refusal = r#"{"type":"error","error":{"type":"overloaded_error","message":"later"}}"#;
    let vendor = StubVendor::saying(whole("529 Overloaded", "application/json", refusal)).await;
    let desk = desk(&vendor, VendorKind::Anthropic, |_| {});
    assert_eq!(desk.post("/v1/messages", prompt("x", false)).await.status.as_u16(), 529);
    let books = desk.close().await;
    let bill = books.bill();
    assert_eq!((bill.calls, bill.spent_picos, bill.held_picos, bill.unknown), (1, 0, 0, 0));
}

#[tokio::test]
async fn an_upstream_nobody_reaches_costs_nothing() {
    let gone = StubVendor::saying("").await;
    let url = gone.url();
    drop(gone);
    let mut config = VendorConfig::new("stub", VendorKind::Anthropic, url);
    config.retries = 0;
    let desk = Desk::with(Arc::new(VendorUpstream::new(config).unwrap()), prices(), |_| {});
    assert_eq!(desk.post("/v1/messages", prompt("x", false)).await.status, StatusCode::BAD_GATEWAY);
    let books = desk.close().await;
    assert_eq!((books.bill().held_picos, books.bill().unknown), (0, 0));
}

#[tokio::test]
async fn an_answer_that_breaks_off_keeps_its_hold_and_is_listed() {
    let start = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"claude-test\",\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n";
    let vendor = StubVendor::playing(move |_, mut pipe: Box<dyn Pipe>| async move {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        pipe.write_all(format!("{head}{:x}\r\n{start}\r\n", start.len()).as_bytes()).await.ok()?;
        None
    })
    .await;
    let desk = desk(&vendor, VendorKind::Anthropic, |_| {});
    let body = prompt("x", true);
    desk.post("/v1/messages", body.clone()).await;
    desk.event("llm.call").await;
    let books = desk.close().await;
    let bill = books.bill();
    assert_eq!((bill.spent_picos, bill.held_picos, bill.unknown), (0, most(&body), 1));
    let unknown = &books.unknowns()[0];
    assert_eq!((unknown.account.as_str(), unknown.model.as_str()), ("acme", "claude-test"));
    assert_eq!(unknown.reason.as_deref(), Some("the response is incomplete"));
}

#[tokio::test]
async fn an_answer_without_counts_is_never_free() {
    let message = r#"{"id":"m","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}"#;
    let vendor = StubVendor::saying(whole("200 OK", "application/json", message)).await;
    let desk = desk(&vendor, VendorKind::Anthropic, |_| {});
    let body = prompt("x", false);
    desk.post("/v1/messages", body.clone()).await;
    let books = desk.close().await;
    assert_eq!((books.bill().held_picos, books.bill().unknown), (most(&body), 1));
}

#[tokio::test]
async fn the_key_is_in_no_record_of_money() {
    let vendor =
        StubVendor::saying(whole("401 Unauthorized", "application/json", &format!("{{\"error\":\"{KEY}\"}}"))).await;
    let desk = desk(&vendor, VendorKind::Anthropic, |_| {});
    let answer = desk.post("/v1/messages", prompt("x", false)).await;
    desk.event("llm.call").await;
    let books = desk.close().await;
    assert!(!answer.text().contains(KEY));
    let notes = books.notes.after(0, usize::MAX).unwrap();
    assert!(!serde_json::to_string(&notes).unwrap().contains(KEY));
    assert!(!books.bytes().windows(KEY.len()).any(|window| window == KEY.as_bytes()));
}
