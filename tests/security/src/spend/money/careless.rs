//! A gateway that believes the request: the control of every attack on the budget.
//!
//! It forwards every header and field, takes the limit of the answer as the request states it, charges the requested
//! model, and charges after the client has read the answer. An attack that passes it would work without our rules.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use testkit::stub_vendor::{Connection, ReceivedRequest, StubVendor, http_response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::vendor::CHEAP;

/// Starts the gateway in front of the vendor at `vendor`.
pub(super) async fn start(vendor: SocketAddr, budget: u64) -> StubVendor {
    let spent = Arc::new(AtomicU64::new(0));
    StubVendor::with_handler(move |request, connection| {
        let spent = spent.clone();
        async move { serve(&request, connection, vendor, budget, &spent).await }
    })
    .await
}

async fn serve(
    request: &ReceivedRequest,
    mut client: Box<dyn Connection>,
    vendor: SocketAddr,
    budget: u64,
    spent: &AtomicU64,
) -> Option<Box<dyn Connection>> {
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    let asked = body["max_tokens"].as_i64().and_then(|limit| u64::try_from(limit).ok()).unwrap_or(0);
    if spent.load(Ordering::SeqCst) + asked * CHEAP > budget {
        client.write_all(http_response("402 Payment Required", "text/plain", "").as_bytes()).await.ok()?;
        client.shutdown().await.ok()?;
        return None;
    }
    let mut upstream = TcpStream::connect(vendor).await.ok()?;
    upstream.write_all(request.head.as_bytes()).await.ok()?;
    upstream.write_all(&request.body).await.ok()?;
    let mut answer = Vec::new();
    let mut part = vec![0; 16 << 10];
    let mut client_is_there = true;
    while !is_complete(&answer) {
        let count = upstream.read(&mut part).await.ok().filter(|count| *count > 0)?;
        answer.extend_from_slice(&part[..count]);
        client_is_there &= client.write_all(&part[..count]).await.is_ok();
    }
    client_is_there &= client.shutdown().await.is_ok();
    // A client that read the answer closes after it. The rest of the stream tells whether it did.
    let closed_cleanly = matches!(client.read(&mut part).await, Ok(0));
    if client_is_there && closed_cleanly {
        spent.fetch_add(asked * CHEAP, Ordering::SeqCst);
    }
    None
}

/// Returns whether all of an answer has arrived.
fn is_complete(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    match head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => length.parse().is_ok_and(|length| body.len() >= length),
        None => body.ends_with("0\r\n\r\n"),
    }
}
