//! The health and readiness checks, which need no token.

use axum::Json;
use axum::extract::State;
use protocol::ProblemCode;

use crate::error::ApiError;
use crate::state::AppState;
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

/// `GET /healthz`: the same as `/v1/health`, for load balancers.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "get_healthz",
    tag = "meta",
    responses((status = 200, description = "The server responds.", body = Health)),
)]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// `GET /readyz`: checks whether the server accepts new work: its index can be read, and it is not stopping.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "get_readyz",
    tag = "meta",
    responses((status = 200, description = "The server accepts new sessions and messages.", body = Health)),
)]
pub(crate) async fn readyz(State(state): State<AppState>) -> Result<Json<Health>, ApiError> {
    if state.sessions.is_draining() {
        return Err(ApiError::new(ProblemCode::ShuttingDown, "the server is stopping"));
    }
    state.sessions.list(None, 1)?;
    Ok(Json(Health { status: "ready" }))
}
