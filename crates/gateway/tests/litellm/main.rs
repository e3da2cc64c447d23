//! Gateway → a real LiteLLM proxy → a stub vendor: LiteLLM's own accounts say who pays and for which run, and our
//! record says under which name LiteLLM keeps the call.
//!
//! `cargo xtask install` puts LiteLLM into the user's cache.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is its purpose")]

mod proxy;
#[path = "../boundary/support.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod support;
#[path = "../boundary/vendor.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod vendor;

use std::sync::Arc;

use gateway::{ModelPrice, PriceTable, TokenRates, VendorConfig, VendorKind, VendorUpstream};
use http::{Method, StatusCode};
use protocol::EventBody;
use secret::Secret;
use serde_json::{Value, json};
use store::Journal;
use tokio::io::AsyncWriteExt;

use proxy::{KEY, MODEL, Proxy};
use support::{Desk, prompt};
use vendor::{Pipe, StubVendor, chunked, whole};

#[tokio::test]
async fn litellm_accounts_say_who_pays_and_our_record_says_which_call() {
    let vendor = vendor().await;
    let mut proxy = Proxy::start(&vendor.url()).await;
    let mut config = VendorConfig::new("proxy", VendorKind::Litellm, proxy.url());
    config.key = Some(Secret::new(KEY));
    let price = ModelPrice::flat(TokenRates { input: 3_000_000, output: 15_000_000, ..TokenRates::default() });
    let prices = PriceTable::default().with_price(MODEL, price);
    let desk = Desk::with(Arc::new(VendorUpstream::new(config).unwrap()), prices, |_| {});
    for stream in [false, true] {
        let body = prompt("x", stream).replace("claude-test", MODEL);
        let mut request = desk.request(Method::POST, "/v1/messages", body);
        // A sandbox that says it is somebody else is not heard.
        request.headers_mut().insert("x-litellm-end-user-id", "somebody-else".parse().unwrap());
        let answer = desk.fetch(request).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert!(answer.headers.keys().all(|name| !name.as_str().starts_with("x-litellm-")), "{:?}", answer.headers);
        check(&desk, &proxy.spend().await);
    }
    let sent = vendor.received();
    assert!(
        !sent.is_empty() && sent.iter().all(|request| !request.head.contains(KEY)),
        "our key goes to LiteLLM alone"
    );
    let books = desk.close().await;
    assert_eq!((books.bill().calls, books.bill().unknown, books.bill().held_picos), (2, 0, 0));
    assert_eq!(books.bill().spent_picos, 2 * (10 * 3_000_000 + 4 * 15_000_000));
}

/// Holds one entry of LiteLLM's accounts against our record of the last call.
#[track_caller]
fn check(desk: &Desk, spend: &Value) {
    let events = desk.notes.after(0, usize::MAX).unwrap();
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

/// The vendor behind LiteLLM.
async fn vendor() -> StubVendor {
    StubVendor::playing(|request, mut pipe: Box<dyn Pipe>| async move {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        pipe.write_all(answer(body["stream"] == true).as_bytes()).await.ok()?;
        Some(pipe)
    })
    .await
}

fn answer(stream: bool) -> String {
    let usage = json!({"input_tokens": 10, "output_tokens": 4});
    let mut message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "usage": usage,
        "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "stop_sequence": null});
    if !stream {
        return whole("200 OK", "application/json", &message.to_string());
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
    chunked(&events.iter().map(String::as_str).collect::<Vec<_>>())
}
