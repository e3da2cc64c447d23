//! Request ids: given by the caller or generated, and repeated in the response, in problems and in the log.

use std::time::Instant;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue, Method};
use uuid::Uuid;

/// The header with the request id.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Longest accepted id, because it is in every log line.
const MAX_LEN: usize = 128;

/// The id of a request; an extension of the request.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Assigns the request id and logs the response.
pub(crate) async fn assign(mut request: Request, next: Next) -> Response {
    let given = request.headers().get(HEADER).and_then(|value| value.to_str().ok());
    let id = given.filter(|id| is_plain(id)).map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
    request.extensions_mut().insert(RequestId(id.clone()));
    let (method, path, started) = (request.method().clone(), request.uri().path().to_owned(), Instant::now());
    let mut response = next.run(request).await;
    let (status, micros) = (response.status().as_u16(), started.elapsed().as_micros());
    if matches!(method, Method::GET | Method::HEAD | Method::OPTIONS) {
        tracing::debug!(target: "viv::access", %method, path, status, micros, request_id = id, "answered");
    } else {
        tracing::info!(target: "viv::audit", %method, path, status, micros, request_id = id, "answered");
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte);
    !id.is_empty() && id.len() <= MAX_LEN && id.bytes().all(plain)
}
