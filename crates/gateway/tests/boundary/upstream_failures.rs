//! Failing upstreams, disconnecting clients and a failing journal.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gateway::{GatewayLimits, VendorKind};
use http::{Method, StatusCode};
use serde_json::json;
use tokio::{io::AsyncWriteExt, sync::Notify};

use crate::{
    support::{
        stub_vendor::{Connection, StubVendor, http_event_stream, http_response},
        test_client::TestClient,
        test_gateway::{TestGateway, prompt},
    },
    vendor_upstreams::{MESSAGE, config, start_gateway, start_gateway_with_limits},
};

#[tokio::test]
async fn server_that_closes_after_each_response_causes_no_errors() {
    let vendor = StubVendor::with_handler(|_, mut connection: Box<dyn Connection>| async move {
        connection.write_all(http_response("200 OK", "application/json", MESSAGE).as_bytes()).await.ok()?;
        None
    })
    .await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    for _ in 0..20 {
        assert_eq!(gateway.post("/v1/messages", prompt("x", false)).await.status, StatusCode::OK);
    }
    assert_eq!(vendor.received().len(), 20);
}

/// Returns the status and body that the client gets when the upstream sends `answer` and closes the connection.
async fn response_after(answer: impl Into<Bytes>, stream: bool) -> (TestGateway, u16, String) {
    let answer: Bytes = answer.into();
    let vendor = StubVendor::with_handler(move |_, mut connection: Box<dyn Connection>| {
        let answer = answer.clone();
        async move {
            connection.write_all(&answer).await.ok()?;
            None
        }
    })
    .await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let answer = gateway.post("/v1/messages", prompt("x", stream)).await;
    let text = answer.text().to_owned();
    (gateway, answer.status.as_u16(), text)
}

#[tokio::test]
async fn invalid_response_is_an_error_in_the_clients_api() {
    for answer in ["", "hello there\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"] {
        let (gateway, status, text) = response_after(answer, false).await;
        assert_eq!(status, 502, "after `{answer}`");
        let body: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("api_error")));
        gateway.wait_for_event("upstream_error").await;
        assert_eq!(gateway.wait_for_event("llm.call").await["status"], 502);
    }
}

#[tokio::test]
async fn interrupted_stream_ends_with_an_error_event() {
    let whole = http_event_stream(&[
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":7}}}\n\n",
    ]);
    for cut in [1, 3, 5, 9, 40] {
        let (gateway, status, text) = response_after(whole[..whole.len() - cut].to_owned(), true).await;
        assert_eq!(status, 200);
        assert!(text.ends_with("\"type\":\"error\"}\n\n"), "cut by {cut}: {text}");
        gateway.wait_for_event("upstream_error").await;
        gateway.wait_for_event("llm.call").await;
    }
}

#[tokio::test]
async fn interrupted_document_is_an_error_in_the_clients_api() {
    let plain = http_response("200 OK", "application/json", MESSAGE);
    let in_chunks = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{MESSAGE}\r\n0\r\n\r\n",
        MESSAGE.len()
    );
    for answer in [plain, in_chunks] {
        for cut in [1, 9, 40] {
            let (gateway, status, text) = response_after(answer[..answer.len() - cut].to_owned(), false).await;
            let body: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!((status, &body["type"]), (502, &json!("error")), "cut by {cut}: {text}");
            gateway.wait_for_event("upstream_error").await;
            gateway.wait_for_event("llm.call").await;
            // The received part is recorded; the cost is unknown.
            let closed = gateway.close().await;
            assert_eq!(closed.unknown_calls().len(), 1, "cut by {cut}");
        }
    }
}

#[tokio::test]
async fn unreachable_upstream_is_an_error_after_the_last_retry() {
    let vendor = StubVendor::answering("").await;
    let mut config = config(VendorKind::Anthropic, &vendor);
    drop(vendor);
    config.retries = 1;
    let gateway = start_gateway(config);
    let answer = gateway.post("/v1/messages", prompt("x", false)).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert_eq!(answer.json()["error"]["message"], "cannot reach the upstream `stub`");
}

#[tokio::test]
async fn upstream_without_a_response_times_out() {
    let vendor = StubVendor::with_handler(|_, connection: Box<dyn Connection>| async move {
        std::future::pending::<()>().await;
        Some(connection)
    })
    .await;
    let mut config = config(VendorKind::Anthropic, &vendor);
    config.timeouts.first_byte = Duration::from_millis(30);
    let answer = start_gateway(config).post("/v1/messages", prompt("x", false)).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["type"].clone()),
        (StatusCode::GATEWAY_TIMEOUT, json!("timeout_error"))
    );
}

#[tokio::test]
async fn endless_event_is_cut_off_at_the_limit() {
    let vendor = StubVendor::with_handler(|_, mut connection: Box<dyn Connection>| async move {
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ").await.ok()?;
        let piece = vec![b'x'; 1 << 16];
        loop {
            connection.write_all(&piece).await.ok()?;
        }
    })
    .await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let answer = gateway.post("/v1/messages", prompt("x", true)).await;
    assert!(answer.text().ends_with("\"type\":\"error\"}\n\n"));
    assert!(answer.body.len() < 10 << 20, "received {} bytes", answer.body.len());
    assert_eq!(
        gateway.wait_for_event("upstream_error").await["message"],
        "the upstream's response is longer than 8388608 bytes"
    );
}

/// Starts a vendor that signals each request (first `Notify`) and answers only after the second `Notify`.
async fn gated_vendor() -> (StubVendor, Arc<Notify>, Arc<Notify>) {
    let (requested, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (request_signal, gate_signal) = (requested.clone(), gate.clone());
    let vendor = StubVendor::with_handler(move |_, mut connection: Box<dyn Connection>| {
        let (request_signal, gate_signal) = (request_signal.clone(), gate_signal.clone());
        async move {
            request_signal.notify_one();
            gate_signal.notified().await;
            connection.write_all(http_response("200 OK", "application/json", MESSAGE).as_bytes()).await.ok()?;
            Some(connection)
        }
    })
    .await;
    (vendor, requested, gate)
}

#[tokio::test]
async fn client_that_leaves_before_the_response_is_charged() {
    let (vendor, requested, gate) = gated_vendor().await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let mut client = TestClient::connect(gateway.address).await;
    let request = gateway.request(Method::POST, "/v1/messages", prompt("x", false));
    tokio::select! {
        _ = client.send(request) => panic!("the vendor has not answered"),
        () = requested.notified() => drop(client),
    }
    gate.notify_one();
    assert_eq!(gateway.wait_for_event("llm.call").await["usage"]["output_tokens"], 4);
}

#[tokio::test]
async fn closing_ends_a_call_without_a_response() {
    let (vendor, requested, _gate) = gated_vendor().await;
    let limits = GatewayLimits { close_grace: Duration::from_millis(20), ..GatewayLimits::default() };
    let gateway = start_gateway_with_limits(config(VendorKind::Anthropic, &vendor), limits);
    let mut client = TestClient::connect(gateway.address).await;
    let request = gateway.request(Method::POST, "/v1/messages", prompt("x", false));
    tokio::select! {
        _ = client.send(request) => panic!("the vendor has not answered"),
        () = requested.notified() => {}
    }
    gateway.attachment.close().await;
    assert_eq!(gateway.journal.event_types(), ["anthropic_request", "upstream_error", "llm.call"]);
}

#[tokio::test]
async fn call_that_cannot_be_recorded_is_not_sent() {
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", MESSAGE)).await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    gateway.journal.fail_writes();
    assert_eq!(gateway.post("/v1/messages", prompt("x", false)).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(vendor.received().is_empty());
    let usage_row = gateway.close().await.session_usage();
    assert_eq!((usage_row.spent_picos, usage_row.held_picos, usage_row.unknown), (0, 0, 0));
}
