//! Pages of other origins: those that were listed may call and read, no other.
//!
//! Which origins come this far at all is decided by `host_guard`; here the browser is told.

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

/// Answers what a browser asks before it calls, and tells it that the page may read the answer.
pub(crate) async fn listed_origins(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let is_listed = |origin: &HeaderValue| {
        state.config.origins.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
    };
    let Some(origin) = origin.filter(is_listed) else { return next.run(request).await };
    let asks = *request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(VARY, HeaderValue::from_static("origin"));
    if asks {
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    } else {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
    response
}
