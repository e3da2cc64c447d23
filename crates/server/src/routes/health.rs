//! Whether the server answers.

use axum::Json;

use crate::wire::Health;

/// `GET /v1/health`: whether the server answers; needs no token.
#[utoipa::path(
    get,
    path = "/v1/health",
    operation_id = "get_health",
    tag = "meta",
    responses((status = 200, description = "It answers.", body = Health)),
)]
pub(crate) async fn show() -> Json<Health> {
    Json(Health { status: "ok" })
}
