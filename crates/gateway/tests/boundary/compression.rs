//! Bodies that come compressed: an answer nobody asked to be so, and a request.

use std::{io::Write as _, sync::Arc};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use gateway::{GatewayLimits, VendorKind};
use http::{Method, StatusCode, header};
use serde_json::json;
use tokio::{io::AsyncWriteExt, sync::Notify};

use crate::{
    support::{Answer, Client, Desk, next_frame, prompt},
    upstreams::{KEY, MESSAGE, config, desk, limited},
    vendor::{Pipe, StubVendor, whole},
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

/// One gzip stream, flushed behind each event, as servers compress what they stream.
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

fn packed(status: &str, kind: &str, coding: &str, body: &[u8]) -> Bytes {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat().into()
}

fn packed_events(events: &[&str]) -> Bytes {
    packed("200 OK", "text/event-stream", "gzip", &gzip_events(events).concat())
}

/// Sends `body` to `path` before an upstream that answers with `answer`: the call is charged, and what comes is plain.
async fn check(kind: VendorKind, answer: Bytes, path: &str, body: &str) -> Answer {
    let vendor = StubVendor::saying(answer).await;
    let desk = desk(config(kind, &vendor));
    let answer = desk.post(path, body.to_owned()).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.headers.get(header::CONTENT_ENCODING), None);
    assert_eq!(vendor.received()[0].header("accept-encoding"), Some("identity"));
    let books = desk.close().await;
    assert!(books.unknowns().is_empty());
    assert_eq!(
        books.bill().usage.output_tokens,
        if path == "/v1/messages" && kind == VendorKind::Anthropic { 4 } else { 3 }
    );
    answer
}

#[tokio::test]
async fn a_compressed_document_reaches_the_client_plain_and_is_charged() {
    for (coding, body) in
        [("gzip", gzip(MESSAGE.as_bytes())), ("zstd", zstd::encode_all(MESSAGE.as_bytes(), 1).unwrap())]
    {
        let answer = packed("200 OK", "application/json", coding, &body);
        let answer = check(VendorKind::Anthropic, answer, "/v1/messages", &prompt("x", false)).await;
        assert_eq!(answer.text(), MESSAGE, "{coding}");
    }
}

#[tokio::test]
async fn a_compressed_document_can_be_translated() {
    let answer = packed("200 OK", "application/json", "gzip", &gzip(CHAT.as_bytes()));
    let answer = check(VendorKind::OpenaiCompatible, answer, "/v1/messages", &prompt("x", false)).await;
    assert_eq!(answer.json()["content"][0]["text"], "hi");
}

#[tokio::test]
async fn a_compressed_stream_can_be_translated() {
    let answer = packed_events(&CHAT_EVENTS);
    let answer = check(VendorKind::OpenaiCompatible, answer, "/v1/messages", &prompt("x", true)).await;
    assert!(answer.text().starts_with("event: message_start\n"), "{}", answer.text());
}

#[tokio::test]
async fn usage_is_hidden_in_a_compressed_stream_too() {
    let body = r#"{"model":"gpt-test","stream":true,"messages":[]}"#;
    let answer = check(VendorKind::Openai, packed_events(&CHAT_EVENTS), "/v1/chat/completions", body).await;
    assert_eq!(answer.text(), format!("{}{}", CHAT_EVENTS[0], CHAT_EVENTS[2]));
}

#[tokio::test]
async fn a_compressed_stream_is_handed_on_event_by_event() {
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let vendor = StubVendor::playing(move |_, mut pipe: Box<dyn Pipe>| {
        let gate = gate.clone();
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n";
            pipe.write_all(head.as_bytes()).await.ok()?;
            for piece in gzip_events(&CHAT_EVENTS) {
                pipe.write_all(&piece).await.ok()?;
                gate.notified().await;
            }
            None
        }
    })
    .await;
    let desk = desk(config(VendorKind::Openai, &vendor));
    let body = r#"{"model":"gpt-test","stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;
    let mut client = Client::connect(desk.address).await;
    let mut body = client.send(desk.request(Method::POST, "/v1/chat/completions", body)).await.into_body();
    for event in CHAT_EVENTS {
        assert_eq!(next_frame(&mut body).await.unwrap(), event);
        opened.notify_one();
    }
    opened.notify_one();
    assert_eq!(next_frame(&mut body).await, None);
    assert!(desk.close().await.unknowns().is_empty());
}

#[tokio::test]
async fn the_key_is_covered_in_what_came_compressed() {
    let echo = format!(r#"{{"type":"error","error":{{"type":"authentication_error","message":"bad key {KEY}"}}}}"#);
    let answer = packed("401 Unauthorized", "application/json", "gzip", &gzip(echo.as_bytes()));
    let vendor = StubVendor::saying(answer).await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let answer = desk.post("/v1/messages", prompt("x", false)).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(answer.text(), echo.replace(KEY, &"*".repeat(KEY.len())));
}

#[tokio::test]
async fn a_coding_that_cannot_be_read_is_named() {
    let vendor = StubVendor::saying(packed("200 OK", "text/event-stream", "br", b"???")).await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let answer = desk.post("/v1/messages", prompt("x", true)).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert!(answer.text().contains("encoded with `br`"), "{}", answer.text());
    assert_eq!(desk.close().await.unknowns().len(), 1);
}

#[tokio::test]
async fn a_refusal_that_cannot_be_read_still_costs_nothing() {
    let vendor = StubVendor::saying(packed("429 Too Many", "application/json", "br", b"???")).await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    assert_eq!(desk.post("/v1/messages", prompt("x", false)).await.status, StatusCode::BAD_GATEWAY);
    assert!(desk.close().await.unknowns().is_empty());
}

#[tokio::test]
async fn what_is_not_the_gzip_it_says_is_an_error_in_the_callers_shape() {
    let vendor = StubVendor::saying(packed("200 OK", "application/json", "gzip", MESSAGE.as_bytes())).await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let answer = desk.post("/v1/messages", prompt("x", false)).await;
    assert_eq!((answer.status, &answer.json()["type"]), (StatusCode::BAD_GATEWAY, &json!("error")));
    assert!(answer.text().contains("invalid gzip data"), "{}", answer.text());
}

#[tokio::test]
async fn an_answer_is_measured_when_it_is_opened() {
    let bomb = gzip(&vec![b' '; 4 << 20]);
    let vendor = StubVendor::saying(packed("200 OK", "application/json", "gzip", &bomb)).await;
    let desk = limited(
        config(VendorKind::Anthropic, &vendor),
        GatewayLimits { answer_bytes: 1 << 20, ..GatewayLimits::default() },
    );
    let answer = desk.post("/v1/messages", prompt("x", false)).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert!(answer.text().contains("longer than 1048576 bytes"), "{}", answer.text());
}

async fn post_encoded(desk: &Desk, coding: &'static str, body: Vec<u8>) -> Answer {
    let mut request = desk.request(Method::POST, "/v1/messages", body);
    request.headers_mut().insert(header::CONTENT_ENCODING, coding.parse().unwrap());
    desk.fetch(request).await
}

#[tokio::test]
async fn a_compressed_request_is_forwarded_plain() {
    let vendor = StubVendor::saying(whole("200 OK", "application/json", MESSAGE)).await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let text = prompt("x", false);
    for (coding, body) in [("gzip", gzip(text.as_bytes())), ("zstd", zstd::encode_all(text.as_bytes(), 1).unwrap())] {
        assert_eq!(post_encoded(&desk, coding, body).await.status, StatusCode::OK, "{coding}");
    }
    for received in vendor.received() {
        assert_eq!((received.body.as_ref(), received.header("content-encoding")), (text.as_bytes(), None));
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_opened_is_refused_and_says_why() {
    let desk =
        Desk::limited("  - answer: [text: hi]\n", GatewayLimits { request_bytes: 10_000, ..GatewayLimits::default() });
    let bomb = gzip(prompt(&"x".repeat(1 << 20), false).as_bytes());
    let cut = gzip(prompt("x", false).as_bytes())[..20].to_vec();
    for (coding, body, status, told) in [
        ("br", b"{}".to_vec(), 415, "`br`"),
        ("gzip, gzip", b"{}".to_vec(), 415, "`gzip, gzip`"),
        ("gzip", prompt("x", false).into_bytes(), 400, "the data is not valid gzip"),
        ("gzip", cut, 400, "request body is incomplete"),
        ("gzip", bomb, 413, "limit is 10000 bytes"),
    ] {
        let answer = post_encoded(&desk, coding, body).await;
        assert_eq!(answer.status.as_u16(), status, "{coding}: {}", answer.text());
        assert!(answer.text().contains(told), "{coding}: {}", answer.text());
    }
    assert!(desk.events().is_empty());
}
