//! Handlers that change the network access of a running session.

use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use protocol::SessionId;

use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::state::AppState;
use crate::wire::{PolicyGrant, PolicyRules};

/// `POST …/policy/narrow`: restricts the network access of a session, for the rest of the session.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/policy/narrow",
    operation_id = "narrow_session_policy",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = PolicyRules,
    responses((status = 204, description = "The rules are in force; connections that they do not allow were closed.")),
)]
pub(crate) async fn narrow(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Json(body): Json<PolicyRules>,
) -> Result<StatusCode, ApiError> {
    state.sessions.narrow(&id, body.rules).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST …/policy/grant`: extends the network access of a session for a time, within the ceiling.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/policy/grant",
    operation_id = "grant_session_policy",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = PolicyGrant,
    responses((status = 204, description = "The grant is in force until its time ends.")),
)]
pub(crate) async fn grant(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Json(body): Json<PolicyGrant>,
) -> Result<StatusCode, ApiError> {
    state.sessions.widen(&id, body.rules, Duration::from_secs(body.seconds)).await?;
    Ok(StatusCode::NO_CONTENT)
}
