//! Whether the server answers.

use axum::Json;

use crate::wire::Health;

/// `GET /v1/health`: needs no token.
pub(crate) async fn show() -> Json<Health> {
    Json(Health { status: "ok" })
}
