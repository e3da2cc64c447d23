//! An HTTP client for tests and its responses.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinSet};

/// A complete response.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl TestResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A client with one connection; dropping it closes the connection.
pub(crate) struct TestClient {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    _connection: JoinSet<()>,
}

impl TestClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        Self { sender, _connection: tasks }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
        self.try_send(request).await.unwrap()
    }

    pub(crate) async fn try_send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, hyper::Error> {
        self.sender.send_request(request).await
    }
}

/// Returns the next bytes of a response body; `None` at its end.
pub(crate) async fn next_frame(body: &mut Incoming) -> Option<Bytes> {
    body.frame().await.map(|frame| frame.unwrap().into_data().unwrap())
}
