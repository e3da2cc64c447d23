//! Upstreams that send endless, slow or invalid responses.
//!
//! In every case the client gets a response or an error of its own API, the call is settled or unknown in the ledger,
//! and no more bytes are read than the limits allow.

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
    support::{
        stub_vendor::{Connection, StubVendor, http_event_stream, http_response},
        test_gateway::{TestGateway, prompt},
    },
    vendor_upstreams::{MESSAGE, config, start_gateway_with_limits},
};

/// Starts a vendor that sends `head` and then `piece` forever; returns it with a counter of the bytes sent.
async fn endless_vendor(head: &'static str, piece: &'static [u8]) -> (StubVendor, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let vendor = StubVendor::with_handler(move |_, mut connection: Box<dyn Connection>| {
        let counted = counted.clone();
        async move {
            connection.write_all(head.as_bytes()).await.ok()?;
            loop {
                connection.write_all(piece).await.ok()?;
                counted.fetch_add(piece.len(), Ordering::SeqCst);
            }
        }
    })
    .await;
    (vendor, sent)
}

fn small_limits() -> GatewayLimits {
    GatewayLimits { answer_bytes: 1 << 20, ..GatewayLimits::default() }
}

/// Checks that the call has ended and is either settled, or unknown with its hold kept.
async fn check_settled(gateway: TestGateway) {
    gateway.wait_for_event("llm.call").await;
    let usage_row = gateway.close().await.session_usage();
    assert_eq!(usage_row.calls, 1);
    assert_eq!(usage_row.held_picos > 0, usage_row.unknown == 1, "a hold remains exactly if the call is unknown");
}

#[tokio::test]
async fn endless_response_is_read_up_to_the_limit() {
    const EVENT: &[u8] = b"data: {\"type\":\"ping\"}\n\n";
    for (kind, stream) in [("application/json", false), ("text/event-stream", true)] {
        let head = if stream {
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
        };
        let (vendor, sent) = endless_vendor(head, EVENT).await;
        let gateway = start_gateway_with_limits(config(VendorKind::Anthropic, &vendor), small_limits());
        let request = gateway.request(http::Method::POST, "/v1/messages", prompt("x", stream));
        let mut client = crate::support::test_client::TestClient::connect(gateway.address).await;
        let mut body = client.send(request).await.into_body();
        let (mut received, mut last) = (0, Vec::new());
        while let Some(Ok(frame)) = http_body_util::BodyExt::frame(&mut body).await {
            let bytes = frame.into_data().unwrap();
            received += bytes.len();
            last = bytes.to_vec();
        }
        assert!(received < 2 << 20, "{kind}: received {received} bytes");
        if stream {
            assert!(last.ends_with(b"\"type\":\"error\"}\n\n"), "{}", String::from_utf8_lossy(&last));
        }
        // The vendor can only send as much more as the buffers of two sockets hold.
        assert!(
            sent.load(Ordering::SeqCst) < 32 << 20,
            "{kind}: the vendor sent {} bytes",
            sent.load(Ordering::SeqCst)
        );
        check_settled(gateway).await;
    }
}

#[tokio::test]
async fn endless_response_head_is_an_error() {
    let (vendor, sent) =
        endless_vendor("HTTP/1.1 200 OK\r\n", b"x-filler: 0123456789012345678901234567890123456789\r\n").await;
    let gateway = start_gateway_with_limits(config(VendorKind::Anthropic, &vendor), small_limits());
    let answer = gateway.post("/v1/messages", prompt("x", false)).await;
    assert_eq!((answer.status, answer.json()["error"]["type"].as_str()), (StatusCode::BAD_GATEWAY, Some("api_error")));
    assert!(sent.load(Ordering::SeqCst) < 32 << 20);
    check_settled(gateway).await;
}

#[tokio::test]
async fn response_sent_byte_by_byte_is_forwarded_unchanged() {
    let events = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-test\",\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    for (answer, stream, expected) in [
        (http_event_stream(&events), true, events.concat()),
        (http_response("200 OK", "application/json", MESSAGE), false, MESSAGE.to_owned()),
    ] {
        let vendor = StubVendor::with_handler(move |_, mut connection: Box<dyn Connection>| {
            let answer = answer.clone();
            async move {
                for byte in answer.as_bytes() {
                    connection.write_all(std::slice::from_ref(byte)).await.ok()?;
                    connection.flush().await.ok()?;
                    tokio::task::yield_now().await;
                }
                Some(connection)
            }
        })
        .await;
        let gateway = start_gateway_with_limits(config(VendorKind::Anthropic, &vendor), small_limits());
        let answer = gateway.post("/v1/messages", prompt("x", stream)).await;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, &*expected));
        let call = gateway.wait_for_event("llm.call").await;
        assert_eq!(call["usage"]["output_tokens"], if stream { 5 } else { 4 });
        check_settled(gateway).await;
    }
}

#[tokio::test]
async fn event_over_eight_mebibytes_is_an_error_and_an_unknown_call() {
    const PIECE: &[u8] = &[b'x'; 1 << 16];
    let (vendor, sent) =
        endless_vendor("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ", PIECE).await;
    let gateway = start_gateway_with_limits(config(VendorKind::Anthropic, &vendor), GatewayLimits::default());
    let answer = gateway.post("/v1/messages", prompt("x", true)).await;
    assert!(answer.text().ends_with("\"type\":\"error\"}\n\n"));
    assert!((7 << 20..10 << 20).contains(&answer.body.len()), "received {} bytes", answer.body.len());
    assert!(sent.load(Ordering::SeqCst) < 64 << 20);
    gateway.wait_for_event("llm.call").await;
    let closed = gateway.close().await;
    assert_eq!((closed.session_usage().unknown, closed.unknown_calls().len()), (1, 1));
}

/// Random bytes, alone or after a valid head, never hang the client, never produce an invalid error, never lose the call.
#[test]
fn random_response_bytes_end_the_call() {
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
            let vendor = StubVendor::with_handler(move |_, mut connection: Box<dyn Connection>| {
                let answer = answer.clone();
                async move {
                    connection.write_all(&answer).await.ok()?;
                    None
                }
            })
            .await;
            let gateway = start_gateway_with_limits(config(VendorKind::Anthropic, &vendor), small_limits());
            let mut client = crate::support::test_client::TestClient::connect(gateway.address).await;
            let request = gateway.request(http::Method::POST, "/v1/messages", prompt("x", stream));
            let sent = tokio::time::timeout(Duration::from_secs(60), client.try_send(request)).await.unwrap();
            let response = sent.unwrap();
            let (status, mut body) = (response.status(), response.into_body());
            let mut text = Vec::new();
            while let Some(Ok(frame)) = http_body_util::BodyExt::frame(&mut body).await {
                text.extend_from_slice(&frame.into_data().unwrap());
            }
            if status == StatusCode::BAD_GATEWAY {
                let error: serde_json::Value = serde_json::from_slice(&text).unwrap();
                assert_eq!(error["type"], "error");
            }
            check_settled(gateway).await;
        });
        Ok(())
    });
    outcome.unwrap();
}
