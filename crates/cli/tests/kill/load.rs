//! Clients that call the gateway in a loop.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use protocol::CallId;
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinSet};

/// Calls until the gateway is gone; returns the completed streams.
pub(crate) async fn until_it_breaks(address: SocketAddr, token: String) -> Vec<CallId> {
    let mut finished = Vec::new();
    // Any error means that the gateway is gone.
    let _: Option<()> = call(address, &token, &mut finished).await;
    finished
}

async fn call(address: SocketAddr, token: &str, finished: &mut Vec<CallId>) -> Option<()> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let _ = connection.await;
    });
    for stream in [true, false].into_iter().cycle() {
        let body = format!(r#"{{"model":"m","max_tokens":100,"stream":{stream},"messages":[]}}"#);
        let request = Request::post("/v1/messages")
            .header("host", "gateway.example.com")
            .header("x-api-key", token)
            .body(Full::new(Bytes::from(body)))
            .ok()?;
        sender.ready().await.ok()?;
        let answer = sender.send_request(request).await.ok()?;
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        if stream {
            finished.push(call_in(&body));
        }
    }
    None
}

/// Returns the call id, which the vendor sends back as the message id.
fn call_in(stream: &[u8]) -> CallId {
    let text = std::str::from_utf8(stream).unwrap();
    let start = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let start: Value = serde_json::from_str(start).unwrap();
    CallId::new(start["message"]["id"].as_str().unwrap()).unwrap()
}
