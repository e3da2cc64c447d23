//! The handler that tells a caller its own rights, so that a page shows only what its token can do.

use axum::Json;
use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::access;
use crate::error::ApiError;
use crate::state::AppState;

/// Response of `GET /v1/whoami`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WhoAmI {
    /// The caller, as the events of a session name it.
    caller: String,
    /// The scopes that the caller has: `read`, `drive`, `answer`, `admin`.
    scopes: Vec<&'static str>,
}

/// `GET /v1/whoami`: returns the scopes of the caller's token; every valid token may ask.
#[utoipa::path(
    get,
    path = "/v1/whoami",
    operation_id = "get_whoami",
    tag = "meta",
    responses((status = 200, description = "The caller and its scopes.", body = WhoAmI)),
)]
pub(crate) async fn show(State(state): State<AppState>, request: Request) -> Result<Json<WhoAmI>, ApiError> {
    let (caller, scopes) = access::rights(&state, &request)?;
    Ok(Json(WhoAmI { caller, scopes: scopes.into_iter().map(access::TokenScope::as_str).collect() }))
}
