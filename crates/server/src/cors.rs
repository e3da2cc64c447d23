//! CORS headers: web pages of listed origins may call the API and read its responses.
//!
//! `host_guard` refuses requests of other origins; this layer only answers the browser.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use http::{Method, StatusCode};

use crate::state::AppState;

const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const HEADERS: &str = "authorization, content-type, last-event-id, idempotency-key, x-request-id";
const EXPOSED: &str =
    "x-request-id, x-viv-sequence, x-viv-turn-id, x-viv-next-cursor, x-viv-truncated, idempotency-replayed";

/// Answers preflight requests, and adds the CORS headers for listed origins.
pub(crate) async fn allow_listed_origins(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let is_listed = |origin: &HeaderValue| {
        state.config.origins.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
    };
    let Some(origin) = origin.filter(is_listed) else { return next.run(request).await };
    let is_preflight =
        *request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(VARY, HeaderValue::from_static("origin"));
    if is_preflight {
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    } else {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
    response
}
