//! The gateway with a real LiteLLM proxy and a stub vendor behind it.
//!
//! LiteLLM's spend log must hold our account and run, and our journal must hold LiteLLM's id of the call.
//! `cargo xtask install` installs LiteLLM into the user's cache.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is its purpose")]

mod proxy;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod support;

use std::sync::Arc;

use gateway::{ModelPrice, PriceTable, TokenRates, VendorConfig, VendorKind, VendorUpstream};
use http::{Method, StatusCode};
use protocol::EventBody;
use secret::Secret;
use serde_json::{Value, json};
use store::Journal;
use tokio::io::AsyncWriteExt;

use proxy::{KEY, LitellmProxy, MODEL};
use support::{
    stub_vendor::{Connection, StubVendor, http_event_stream, http_response},
    test_gateway::{TestGateway, prompt},
};

#[tokio::test]
async fn litellm_spend_log_and_our_journal_identify_the_same_call() {
    let vendor = vendor().await;
    let mut proxy = LitellmProxy::start(&vendor.url()).await;
    let mut config = VendorConfig::new("proxy", VendorKind::Litellm, proxy.url());
    config.key = Some(Secret::new(KEY));
    let price = ModelPrice::flat(TokenRates { input: 3_000_000, output: 15_000_000, ..TokenRates::default() });
    let prices = PriceTable::default().with_price(MODEL, price);
    let gateway = TestGateway::with_identity(Arc::new(VendorUpstream::new(config).unwrap()), prices, |_| {});
    for stream in [false, true] {
        let body = prompt("x", stream).replace("claude-test", MODEL);
        let mut request = gateway.request(Method::POST, "/v1/messages", body);
        // The sandbox cannot choose another account.
        request.headers_mut().insert("x-litellm-end-user-id", "somebody-else".parse().unwrap());
        let answer = gateway.fetch(request).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("x-litellm-")), "{:?}", answer.headers);
        check(&gateway, &proxy.spend().await);
    }
    let sent = vendor.received();
    assert!(
        !sent.is_empty() && sent.iter().all(|request| !request.head.contains(KEY)),
        "our key must only be sent to LiteLLM"
    );
    let closed = gateway.close().await;
    assert_eq!(
        (closed.session_usage().calls, closed.session_usage().unknown, closed.session_usage().held_picos),
        (2, 0, 0)
    );
    assert_eq!(closed.session_usage().spent_picos, 2 * (10 * 3_000_000 + 4 * 15_000_000));
}

/// Compares one entry of LiteLLM's spend log with our record of the last call.
#[track_caller]
fn check(gateway: &TestGateway, spend: &Value) {
    let events = gateway.journal.after(0, usize::MAX).unwrap();
    let mut calls = events.into_iter().rev().filter_map(|event| match event.draft.body {
        EventBody::LlmCall(call) => Some(call),
        _ => None,
    });
    let call = calls.next().unwrap();
    let metadata = json!({"run_id": "r1", "attempt": 1, "session_id": "s1", "user_id": "ann", "call_id": call.call_id});
    assert_eq!((&spend["end_user"], &spend["metadata"]), (&json!("acme"), &metadata), "{spend}");
    assert_eq!(spend["call_id"], json!(call.upstream_call_id), "{spend}");
    assert!(call.upstream_call_id.is_some());
    let counted = (spend["input_tokens"].as_u64(), spend["output_tokens"].as_u64());
    assert_eq!(counted, (Some(call.usage.input_tokens), Some(call.usage.output_tokens)), "{spend}");
}

/// Starts the vendor behind LiteLLM.
async fn vendor() -> StubVendor {
    StubVendor::with_handler(|request, mut connection: Box<dyn Connection>| async move {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        connection.write_all(answer(body["stream"] == true).as_bytes()).await.ok()?;
        Some(connection)
    })
    .await
}

fn answer(stream: bool) -> String {
    let usage = json!({"input_tokens": 10, "output_tokens": 4});
    let mut message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "usage": usage,
        "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "stop_sequence": null});
    if !stream {
        return http_response("200 OK", "application/json", &message.to_string());
    }
    (message["content"], message["stop_reason"]) = (json!([]), Value::Null);
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}),
        json!({"type": "message_stop"}),
    ];
    let events = events.map(|data| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap()));
    http_event_stream(&events.iter().map(String::as_str).collect::<Vec<_>>())
}
