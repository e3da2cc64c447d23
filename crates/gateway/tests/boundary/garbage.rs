//! Upstreams that send too much, too little, or anything at all.
//!
//! Whatever comes, the caller gets an answer or an error of its own API, the call has a known state, and no more is
//! taken than the limits say.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use gateway::{GatewayLimits, VendorKind};
use http::StatusCode;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::AsyncWriteExt;

use crate::{
    support::{Desk, prompt},
    upstreams::{MESSAGE, config, limited},
    vendor::{Pipe, StubVendor, chunked, whole},
};

/// A vendor that says `head` and then `piece` for as long as anybody listens, and how much it got rid of.
async fn endless(head: &'static str, piece: &'static [u8]) -> (StubVendor, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let vendor = StubVendor::playing(move |_, mut pipe: Box<dyn Pipe>| {
        let counted = counted.clone();
        async move {
            pipe.write_all(head.as_bytes()).await.ok()?;
            loop {
                pipe.write_all(piece).await.ok()?;
                counted.fetch_add(piece.len(), Ordering::SeqCst);
            }
        }
    })
    .await;
    (vendor, sent)
}

fn modest() -> GatewayLimits {
    GatewayLimits { answer_bytes: 1 << 20, ..GatewayLimits::default() }
}

/// The call is over, and its bill is either known or known to be unknown.
async fn check_settled(desk: Desk) {
    desk.event("llm.call").await;
    let bill = desk.close().await.bill();
    assert_eq!(bill.calls, 1);
    assert_eq!(bill.held_picos > 0, bill.unknown == 1, "what is held is unknown, and what is unknown is held");
}

#[tokio::test]
async fn an_endless_answer_is_taken_up_to_its_limit() {
    const EVENT: &[u8] = b"data: {\"type\":\"ping\"}\n\n";
    for (kind, stream) in [("application/json", false), ("text/event-stream", true)] {
        let head = if stream {
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
        };
        let (vendor, sent) = endless(head, EVENT).await;
        let desk = limited(config(VendorKind::Anthropic, &vendor), modest());
        let request = desk.request(http::Method::POST, "/v1/messages", prompt("x", stream));
        let mut client = crate::support::Client::connect(desk.address).await;
        let mut body = client.send(request).await.into_body();
        let (mut came, mut last) = (0, Vec::new());
        while let Some(Ok(frame)) = http_body_util::BodyExt::frame(&mut body).await {
            let bytes = frame.into_data().unwrap();
            came += bytes.len();
            last = bytes.to_vec();
        }
        assert!(came < 2 << 20, "{kind}: {came} bytes came");
        if stream {
            assert!(last.ends_with(b"\"type\":\"error\"}\n\n"), "{}", String::from_utf8_lossy(&last));
        }
        // What the buffers of two sockets hold was sent in vain; the vendor was not read dry.
        assert!(sent.load(Ordering::SeqCst) < 32 << 20, "{kind}: {} bytes were taken", sent.load(Ordering::SeqCst));
        check_settled(desk).await;
    }
}

#[tokio::test]
async fn a_head_without_end_is_given_up() {
    let (vendor, sent) =
        endless("HTTP/1.1 200 OK\r\n", b"x-filler: 0123456789012345678901234567890123456789\r\n").await;
    let desk = limited(config(VendorKind::Anthropic, &vendor), modest());
    let answer = desk.post("/v1/messages", prompt("x", false)).await;
    assert_eq!((answer.status, answer.json()["error"]["type"].as_str()), (StatusCode::BAD_GATEWAY, Some("api_error")));
    assert!(sent.load(Ordering::SeqCst) < 32 << 20);
    check_settled(desk).await;
}

#[tokio::test]
async fn an_answer_in_single_bytes_is_the_same_answer() {
    let events = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-test\",\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    for (answer, stream, expected) in [
        (chunked(&events), true, events.concat()),
        (whole("200 OK", "application/json", MESSAGE), false, MESSAGE.to_owned()),
    ] {
        let vendor = StubVendor::playing(move |_, mut pipe: Box<dyn Pipe>| {
            let answer = answer.clone();
            async move {
                for byte in answer.as_bytes() {
                    pipe.write_all(std::slice::from_ref(byte)).await.ok()?;
                    pipe.flush().await.ok()?;
                    tokio::task::yield_now().await;
                }
                Some(pipe)
            }
        })
        .await;
        let desk = limited(config(VendorKind::Anthropic, &vendor), modest());
        let answer = desk.post("/v1/messages", prompt("x", stream)).await;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, &*expected));
        let call = desk.event("llm.call").await;
        assert_eq!(call["usage"]["output_tokens"], if stream { 5 } else { 4 });
        check_settled(desk).await;
    }
}

#[tokio::test]
async fn eight_mebibytes_without_a_line_end_are_an_error_and_an_unknown_call() {
    const PIECE: &[u8] = &[b'x'; 1 << 16];
    let (vendor, sent) = endless("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ", PIECE).await;
    let desk = limited(config(VendorKind::Anthropic, &vendor), GatewayLimits::default());
    let answer = desk.post("/v1/messages", prompt("x", true)).await;
    assert!(answer.text().ends_with("\"type\":\"error\"}\n\n"));
    assert!((7 << 20..10 << 20).contains(&answer.body.len()), "{} bytes came", answer.body.len());
    assert!(sent.load(Ordering::SeqCst) < 64 << 20);
    desk.event("llm.call").await;
    let books = desk.close().await;
    assert_eq!((books.bill().unknown, books.unknowns().len()), (1, 1));
}

/// Any bytes at all, alone or behind a proper head: never a hang, never an answer of no shape, never a lost call.
#[test]
fn any_bytes_end_the_call() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let bytes = proptest::collection::vec(proptest::num::u8::ANY, 0..400);
    let heads = proptest::sample::select(vec![
        "",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 300\r\n\r\n",
        "HTTP/1.1 500 Oh\r\ncontent-type: text/html\r\n\r\n",
    ]);
    let outcome = runner.run(&(heads, bytes, proptest::bool::ANY), |(head, bytes, stream)| {
        runtime.block_on(async {
            let answer = [head.as_bytes(), &bytes].concat();
            let vendor = StubVendor::playing(move |_, mut pipe: Box<dyn Pipe>| {
                let answer = answer.clone();
                async move {
                    pipe.write_all(&answer).await.ok()?;
                    None
                }
            })
            .await;
            let desk = limited(config(VendorKind::Anthropic, &vendor), modest());
            let mut client = crate::support::Client::connect(desk.address).await;
            let request = desk.request(http::Method::POST, "/v1/messages", prompt("x", stream));
            let sent = tokio::time::timeout(Duration::from_secs(60), client.try_send(request)).await.unwrap();
            let response = sent.unwrap();
            let (status, mut body) = (response.status(), response.into_body());
            let mut text = Vec::new();
            while let Some(Ok(frame)) = http_body_util::BodyExt::frame(&mut body).await {
                text.extend_from_slice(&frame.into_data().unwrap());
            }
            if status == StatusCode::BAD_GATEWAY {
                let told: serde_json::Value = serde_json::from_slice(&text).unwrap();
                assert_eq!(told["type"], "error");
            }
            check_settled(desk).await;
        });
        Ok(())
    });
    outcome.unwrap();
}
