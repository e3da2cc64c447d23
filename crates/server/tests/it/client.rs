//! A client that calls a router directly.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use serde_json::Value;
use testkit::{SseFrame, sse_frames};
use tower::ServiceExt;

/// Calls a router like a client on this machine.
#[derive(Clone)]
pub(crate) struct Client {
    app: Router,
}

/// A complete response.
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ApiResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn frames(&self) -> Vec<SseFrame> {
        sse_frames(&self.text())
    }
}

impl Client {
    pub(crate) fn new(app: Router) -> Self {
        Self { app }
    }

    pub(crate) async fn get(&self, path: &str) -> ApiResponse {
        self.call(request(Method::GET, path, "")).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> ApiResponse {
        self.call(request(Method::POST, path, body)).await
    }

    pub(crate) async fn call(&self, request: Request<Body>) -> ApiResponse {
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        ApiResponse { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Returns the text of a stream up to and including `wanted`, and drops the stream.
    pub(crate) async fn first_text(&self, request: Request<Body>, wanted: &str) -> String {
        let (mut body, mut text) = (self.app.clone().oneshot(request).await.unwrap().into_body(), String::new());
        while !text.contains(wanted) {
            let piece = body.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(piece.data_ref().unwrap()).unwrap());
        }
        text
    }

    /// Returns the first `count` frames of a stream, and drops the stream.
    pub(crate) async fn first_frames(&self, path: &str, count: usize) -> Vec<SseFrame> {
        let response = self.app.clone().oneshot(request(Method::GET, path, "")).await.unwrap();
        assert_eq!(response.status(), 200);
        let (mut body, mut text) = (response.into_body(), String::new());
        while sse_frames(&text).len() < count {
            let Some(piece) = body.frame().await else { break };
            text.push_str(std::str::from_utf8(piece.unwrap().data_ref().unwrap()).unwrap());
        }
        sse_frames(&text).into_iter().take(count).collect()
    }
}

pub(crate) fn request(method: Method, path: &str, body: &str) -> Request<Body> {
    let builder = Request::builder().method(method).uri(path).header("host", "localhost:2468");
    let builder = if body.is_empty() { builder } else { builder.header("content-type", "application/json") };
    builder.body(Body::from(body.to_owned())).unwrap()
}
