//! Upstreams that misbehave, clients that leave, journals that fail, budgets that end.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gateway::{GatewayLimits, VendorKind};
use http::{Method, StatusCode};
use serde_json::json;
use tokio::{io::AsyncWriteExt, sync::Notify};

use crate::{
    support::{Client, Desk, prompt},
    upstreams::{MESSAGE, config, desk, limited},
    vendor::{Pipe, StubVendor, chunked, whole},
};

#[tokio::test]
async fn a_server_that_hangs_up_after_each_answer_costs_no_call() {
    let vendor = StubVendor::playing(|_, mut pipe: Box<dyn Pipe>| async move {
        pipe.write_all(whole("200 OK", "application/json", MESSAGE).as_bytes()).await.ok()?;
        None
    })
    .await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    for _ in 0..20 {
        assert_eq!(desk.post("/v1/messages", prompt("x", false)).await.status, StatusCode::OK);
    }
    assert_eq!(vendor.received().len(), 20);
}

/// What a client is told when the upstream says `answer` and hangs up.
async fn told_after(answer: impl Into<Bytes>, stream: bool) -> (Desk, u16, String) {
    let answer: Bytes = answer.into();
    let vendor = StubVendor::playing(move |_, mut pipe: Box<dyn Pipe>| {
        let answer = answer.clone();
        async move {
            pipe.write_all(&answer).await.ok()?;
            None
        }
    })
    .await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let answer = desk.post("/v1/messages", prompt("x", stream)).await;
    let text = answer.text().to_owned();
    (desk, answer.status.as_u16(), text)
}

#[tokio::test]
async fn an_upstream_that_makes_no_sense_is_an_error_in_the_callers_shape() {
    for answer in ["", "hello there\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"] {
        let (desk, status, text) = told_after(answer, false).await;
        assert_eq!(status, 502, "after `{answer}`");
        let body: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("api_error")));
        desk.event("upstream_error").await;
        assert_eq!(desk.event("llm.call").await["status"], 502);
    }
}

#[tokio::test]
async fn a_stream_cut_in_the_middle_ends_with_an_error_event() {
    let whole = chunked(&[
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":7}}}\n\n",
    ]);
    for cut in [1, 3, 5, 9, 40] {
        let (desk, status, text) = told_after(whole[..whole.len() - cut].to_owned(), true).await;
        assert_eq!(status, 200);
        assert!(text.ends_with("\"type\":\"error\"}\n\n"), "cut by {cut}: {text}");
        desk.event("upstream_error").await;
        desk.event("llm.call").await;
    }
}

#[tokio::test]
async fn a_document_cut_in_the_middle_is_an_error_in_the_callers_shape() {
    let plain = whole("200 OK", "application/json", MESSAGE);
    let in_chunks = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{MESSAGE}\r\n0\r\n\r\n",
        MESSAGE.len()
    );
    for answer in [plain, in_chunks] {
        for cut in [1, 9, 40] {
            let (desk, status, text) = told_after(answer[..answer.len() - cut].to_owned(), false).await;
            let body: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!((status, &body["type"]), (502, &json!("error")), "cut by {cut}: {text}");
            desk.event("upstream_error").await;
            desk.event("llm.call").await;
            // What came of it is kept, and what it cost nobody knows.
            let books = desk.close().await;
            assert_eq!(books.unknowns().len(), 1, "cut by {cut}");
        }
    }
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_is_told_after_the_last_try() {
    let vendor = StubVendor::saying("").await;
    let mut config = config(VendorKind::Anthropic, &vendor);
    drop(vendor);
    config.retries = 1;
    let desk = desk(config);
    let answer = desk.post("/v1/messages", prompt("x", false)).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert_eq!(answer.json()["error"]["message"], "cannot reach the upstream `stub`");
}

#[tokio::test]
async fn a_silent_upstream_is_given_up() {
    let vendor = StubVendor::playing(|_, pipe: Box<dyn Pipe>| async move {
        std::future::pending::<()>().await;
        Some(pipe)
    })
    .await;
    let mut config = config(VendorKind::Anthropic, &vendor);
    config.timeouts.first_byte = Duration::from_millis(30);
    let answer = desk(config).post("/v1/messages", prompt("x", false)).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["type"].clone()),
        (StatusCode::GATEWAY_TIMEOUT, json!("timeout_error"))
    );
}

#[tokio::test]
async fn an_event_without_end_is_cut_at_its_limit() {
    let vendor = StubVendor::playing(|_, mut pipe: Box<dyn Pipe>| async move {
        pipe.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ").await.ok()?;
        let piece = vec![b'x'; 1 << 16];
        loop {
            pipe.write_all(&piece).await.ok()?;
        }
    })
    .await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let answer = desk.post("/v1/messages", prompt("x", true)).await;
    assert!(answer.text().ends_with("\"type\":\"error\"}\n\n"));
    assert!(answer.body.len() < 10 << 20, "{} bytes came", answer.body.len());
    assert_eq!(desk.event("upstream_error").await["message"], "the upstream's answer is longer than 8388608 bytes");
}

/// A vendor that answers only once it is told to, and the way to tell it.
async fn vendor_at_gate() -> (StubVendor, Arc<Notify>, Arc<Notify>) {
    let (asked, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (asking, opened) = (asked.clone(), gate.clone());
    let vendor = StubVendor::playing(move |_, mut pipe: Box<dyn Pipe>| {
        let (asking, opened) = (asking.clone(), opened.clone());
        async move {
            asking.notify_one();
            opened.notified().await;
            pipe.write_all(whole("200 OK", "application/json", MESSAGE).as_bytes()).await.ok()?;
            Some(pipe)
        }
    })
    .await;
    (vendor, asked, gate)
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_begins_is_charged_for_it() {
    let (vendor, asked, gate) = vendor_at_gate().await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let mut client = Client::connect(desk.address).await;
    let request = desk.request(Method::POST, "/v1/messages", prompt("x", false));
    tokio::select! {
        _ = client.send(request) => panic!("the vendor has not answered"),
        () = asked.notified() => drop(client),
    }
    gate.notify_one();
    assert_eq!(desk.event("llm.call").await["usage"]["output_tokens"], 4);
}

#[tokio::test]
async fn closing_ends_a_call_that_has_no_answer_yet() {
    let (vendor, asked, _gate) = vendor_at_gate().await;
    let limits = GatewayLimits { close_grace: Duration::from_millis(20), ..GatewayLimits::default() };
    let desk = limited(config(VendorKind::Anthropic, &vendor), limits);
    let mut client = Client::connect(desk.address).await;
    let request = desk.request(Method::POST, "/v1/messages", prompt("x", false));
    tokio::select! {
        _ = client.send(request) => panic!("the vendor has not answered"),
        () = asked.notified() => {}
    }
    desk.attachment.close().await;
    assert_eq!(desk.notes.names(), ["anthropic_request", "upstream_error", "llm.call"]);
}

#[tokio::test]
async fn a_call_that_cannot_be_recorded_is_not_made() {
    let vendor = StubVendor::saying(whole("200 OK", "application/json", MESSAGE)).await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    desk.notes.fail();
    assert_eq!(desk.post("/v1/messages", prompt("x", false)).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(vendor.received().is_empty());
    let bill = desk.close().await.bill();
    assert_eq!((bill.spent_picos, bill.held_picos, bill.unknown), (0, 0, 0));
}
