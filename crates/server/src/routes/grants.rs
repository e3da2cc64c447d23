//! Handlers for the grants of a session.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use protocol::{PermissionId, SessionId};

use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::pagination::{ListQuery, natural_order, paginate};
use crate::state::AppState;
use crate::wire::GrantList;

/// `GET …/grants`: lists the grants that answers with `always` created.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/grants",
    operation_id = "list_grants",
    tag = "pending",
    params(("session_id" = SessionId, Path), ListQuery),
    responses((status = 200, description = "Oldest first.", body = GrantList)),
)]
pub(crate) async fn list(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<ListQuery>,
) -> Result<Json<GrantList>, ApiError> {
    let grants = state.sessions.grants(&id).await?;
    let (grants, next_cursor) = paginate(grants, &query, |grant| natural_order(grant.grant_id.as_str()))?;
    Ok(Json(GrantList { grants, next_cursor }))
}

/// `DELETE …/grants/{grant_id}`: revokes a grant, so that the agent has to ask again.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}/grants/{grant_id}",
    operation_id = "revoke_grant",
    tag = "pending",
    params(("session_id" = SessionId, Path), ("grant_id" = PermissionId, Path)),
    responses((status = 204, description = "The grant is revoked.")),
)]
pub(crate) async fn revoke(
    State(state): State<AppState>,
    Path((id, grant)): Path<(SessionId, PermissionId)>,
) -> Result<StatusCode, ApiError> {
    state.sessions.revoke(&id, &grant).await?;
    Ok(StatusCode::NO_CONTENT)
}
