//! The health check.

use axum::Json;

use crate::wire::Health;

/// `GET /v1/health`: checks whether the server responds; needs no token.
#[utoipa::path(
    get,
    path = "/v1/health",
    operation_id = "get_health",
    tag = "meta",
    responses((status = 200, description = "The server responds.", body = Health)),
)]
pub(crate) async fn show() -> Json<Health> {
    Json(Health { status: "ok" })
}
