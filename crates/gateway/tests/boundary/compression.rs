//! Compressed bodies: responses that are compressed without being requested so, and compressed requests.

use std::{io::Write as _, sync::Arc};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use gateway::{GatewayLimits, VendorKind};
use http::{Method, StatusCode, header};
use serde_json::json;
use tokio::{io::AsyncWriteExt, sync::Notify};

use crate::{
    support::{
        stub_vendor::{Connection, StubVendor, http_response},
        test_client::{TestClient, TestResponse, next_frame},
        test_gateway::{TestGateway, prompt},
    },
    vendor_upstreams::{KEY, MESSAGE, config, start_gateway, start_gateway_with_limits},
};

const CHAT: &str = r#"{"id":"c1","model":"gpt-test","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#;
const CHAT_EVENTS: [&str; 3] = [
    "data: {\"id\":\"c1\",\"model\":\"gpt-test\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"id\":\"c1\",\"model\":\"gpt-test\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n",
    "data: [DONE]\n\n",
];

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::default());
    writer.write_all(text).unwrap();
    writer.finish().unwrap()
}

/// Returns one gzip stream that is flushed after each event, as servers compress streams.
fn gzip_events(events: &[&str]) -> Vec<Vec<u8>> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::default());
    let mut pieces: Vec<Vec<u8>> = events
        .iter()
        .map(|event| {
            writer.write_all(event.as_bytes()).unwrap();
            writer.flush().unwrap();
            std::mem::take(writer.get_mut())
        })
        .collect();
    pieces.push(writer.finish().unwrap());
    pieces
}

fn compressed_response(status: &str, kind: &str, coding: &str, body: &[u8]) -> Bytes {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat().into()
}

fn compressed_event_stream(events: &[&str]) -> Bytes {
    compressed_response("200 OK", "text/event-stream", "gzip", &gzip_events(events).concat())
}

/// Sends `body` to `path` of a gateway whose upstream answers with `answer`; checks that the client gets an
/// uncompressed response and that the call is charged.
async fn check(kind: VendorKind, answer: Bytes, path: &str, body: &str) -> TestResponse {
    let vendor = StubVendor::answering(answer).await;
    let gateway = start_gateway(config(kind, &vendor));
    let answer = gateway.post(path, body.to_owned()).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.headers.get(header::CONTENT_ENCODING), None);
    assert_eq!(vendor.received()[0].header("accept-encoding"), Some("identity"));
    let closed = gateway.close().await;
    assert!(closed.unknown_calls().is_empty());
    assert_eq!(
        closed.session_usage().usage.output_tokens,
        if path == "/v1/messages" && kind == VendorKind::Anthropic { 4 } else { 3 }
    );
    answer
}

#[tokio::test]
async fn compressed_document_is_decompressed_and_charged() {
    for (coding, body) in
        [("gzip", gzip(MESSAGE.as_bytes())), ("zstd", zstd::encode_all(MESSAGE.as_bytes(), 1).unwrap())]
    {
        let answer = compressed_response("200 OK", "application/json", coding, &body);
        let answer = check(VendorKind::Anthropic, answer, "/v1/messages", &prompt("x", false)).await;
        assert_eq!(answer.text(), MESSAGE, "{coding}");
    }
}

#[tokio::test]
async fn compressed_document_can_be_translated() {
    let answer = compressed_response("200 OK", "application/json", "gzip", &gzip(CHAT.as_bytes()));
    let answer = check(VendorKind::OpenaiCompatible, answer, "/v1/messages", &prompt("x", false)).await;
    assert_eq!(answer.json()["content"][0]["text"], "hi");
}

#[tokio::test]
async fn compressed_stream_can_be_translated() {
    let answer = compressed_event_stream(&CHAT_EVENTS);
    let answer = check(VendorKind::OpenaiCompatible, answer, "/v1/messages", &prompt("x", true)).await;
    assert!(answer.text().starts_with("event: message_start\n"), "{}", answer.text());
}

#[tokio::test]
async fn usage_is_hidden_in_a_compressed_stream() {
    let body = r#"{"model":"gpt-test","stream":true,"messages":[]}"#;
    let answer = check(VendorKind::Openai, compressed_event_stream(&CHAT_EVENTS), "/v1/chat/completions", body).await;
    assert_eq!(answer.text(), format!("{}{}", CHAT_EVENTS[0], CHAT_EVENTS[2]));
}

#[tokio::test]
async fn compressed_stream_is_forwarded_event_by_event() {
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let vendor = StubVendor::with_handler(move |_, mut connection: Box<dyn Connection>| {
        let gate = gate.clone();
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n";
            connection.write_all(head.as_bytes()).await.ok()?;
            for piece in gzip_events(&CHAT_EVENTS) {
                connection.write_all(&piece).await.ok()?;
                gate.notified().await;
            }
            None
        }
    })
    .await;
    let gateway = start_gateway(config(VendorKind::Openai, &vendor));
    let body = r#"{"model":"gpt-test","stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;
    let mut client = TestClient::connect(gateway.address).await;
    let mut body = client.send(gateway.request(Method::POST, "/v1/chat/completions", body)).await.into_body();
    for event in CHAT_EVENTS {
        assert_eq!(next_frame(&mut body).await.unwrap(), event);
        opened.notify_one();
    }
    opened.notify_one();
    assert_eq!(next_frame(&mut body).await, None);
    assert!(gateway.close().await.unknown_calls().is_empty());
}

#[tokio::test]
async fn key_is_redacted_in_a_compressed_response() {
    let echo = format!(r#"{{"type":"error","error":{{"type":"authentication_error","message":"bad key {KEY}"}}}}"#);
    let answer = compressed_response("401 Unauthorized", "application/json", "gzip", &gzip(echo.as_bytes()));
    let vendor = StubVendor::answering(answer).await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let answer = gateway.post("/v1/messages", prompt("x", false)).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer.text(), echo.replace(KEY, &"*".repeat(KEY.len())));
}

#[tokio::test]
async fn unsupported_encoding_is_named_in_the_error() {
    let vendor = StubVendor::answering(compressed_response("200 OK", "text/event-stream", "br", b"???")).await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let answer = gateway.post("/v1/messages", prompt("x", true)).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert!(answer.text().contains("content encoding `br`"), "{}", answer.text());
    assert_eq!(gateway.close().await.unknown_calls().len(), 1);
}

#[tokio::test]
async fn error_response_with_unsupported_encoding_costs_nothing() {
    let vendor = StubVendor::answering(compressed_response("429 Too Many", "application/json", "br", b"???")).await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    assert_eq!(gateway.post("/v1/messages", prompt("x", false)).await.status, StatusCode::BAD_GATEWAY);
    assert!(gateway.close().await.unknown_calls().is_empty());
}

#[tokio::test]
async fn invalid_gzip_response_is_an_error_in_the_clients_api() {
    let vendor =
        StubVendor::answering(compressed_response("200 OK", "application/json", "gzip", MESSAGE.as_bytes())).await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let answer = gateway.post("/v1/messages", prompt("x", false)).await;
    assert_eq!((answer.status, &answer.json()["type"]), (StatusCode::BAD_GATEWAY, &json!("error")));
    assert!(answer.text().contains("invalid gzip data"), "{}", answer.text());
}

#[tokio::test]
async fn response_limit_applies_to_the_decompressed_size() {
    let bomb = gzip(&vec![b' '; 4 << 20]);
    let vendor = StubVendor::answering(compressed_response("200 OK", "application/json", "gzip", &bomb)).await;
    let gateway = start_gateway_with_limits(
        config(VendorKind::Anthropic, &vendor),
        GatewayLimits { answer_bytes: 1 << 20, ..GatewayLimits::default() },
    );
    let answer = gateway.post("/v1/messages", prompt("x", false)).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert!(answer.text().contains("longer than 1048576 bytes"), "{}", answer.text());
}

async fn post_encoded(gateway: &TestGateway, coding: &'static str, body: Vec<u8>) -> TestResponse {
    let mut request = gateway.request(Method::POST, "/v1/messages", body);
    request.headers_mut().insert(header::CONTENT_ENCODING, coding.parse().unwrap());
    gateway.fetch(request).await
}

#[tokio::test]
async fn compressed_request_is_forwarded_uncompressed() {
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", MESSAGE)).await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let text = prompt("x", false);
    for (coding, body) in [("gzip", gzip(text.as_bytes())), ("zstd", zstd::encode_all(text.as_bytes(), 1).unwrap())] {
        assert_eq!(post_encoded(&gateway, coding, body).await.status, StatusCode::OK, "{coding}");
    }
    for received in vendor.received() {
        assert_eq!((received.body.as_ref(), received.header("content-encoding")), (text.as_bytes(), None));
    }
}

#[tokio::test]
async fn request_that_cannot_be_decompressed_is_rejected_with_the_reason() {
    let gateway = TestGateway::with_script_and_limits(
        "  - answer: [text: hi]\n",
        GatewayLimits { request_bytes: 10_000, ..GatewayLimits::default() },
    );
    let bomb = gzip(prompt(&"x".repeat(1 << 20), false).as_bytes());
    let cut = gzip(prompt("x", false).as_bytes())[..20].to_vec();
    for (coding, body, status, message) in [
        ("br", b"{}".to_vec(), 415, "`br`"),
        ("gzip, gzip", b"{}".to_vec(), 415, "`gzip, gzip`"),
        ("gzip", prompt("x", false).into_bytes(), 400, "the data is not valid gzip"),
        ("gzip", cut, 400, "request body is incomplete"),
        ("gzip", bomb, 413, "limit is 10000 bytes"),
    ] {
        let answer = post_encoded(&gateway, coding, body).await;
        assert_eq!(answer.status.as_u16(), status, "{coding}: {}", answer.text());
        assert!(answer.text().contains(message), "{coding}: {}", answer.text());
    }
    assert!(gateway.events().is_empty());
}
