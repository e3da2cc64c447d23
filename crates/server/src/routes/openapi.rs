//! The handler for the OpenAPI document.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

use crate::state::AppState;

/// `GET /openapi.json`: returns this document; needs no token.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "get_openapi",
    tag = "meta",
    responses((status = 200, description = "The OpenAPI 3.1 document.", body = serde_json::Value)),
)]
pub(crate) async fn show(State(state): State<AppState>) -> Response {
    ([(CONTENT_TYPE, "application/json")], state.document.get().cloned().unwrap_or_default()).into_response()
}
