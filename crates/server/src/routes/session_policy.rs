//! What a running session may reach, and how that is changed.

use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use protocol::SessionId;

use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::state::AppState;
use crate::wire::{PolicyGrant, PolicyRules};

/// `POST …/policy/narrow`: takes away from what it may reach, for the rest of its life.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/policy/narrow",
    operation_id = "narrow_session_policy",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = PolicyRules,
    responses((status = 204, description = "It holds; what is under way and no longer allowed was cut.")),
)]
pub(crate) async fn narrow(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Json(body): Json<PolicyRules>,
) -> Result<StatusCode, ApiError> {
    state.sessions.narrow(&id, body.rules).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST …/policy/grant`: a person lets it reach more, for a time; nothing passes the ceiling.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/policy/grant",
    operation_id = "grant_session_policy",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = PolicyGrant,
    responses((status = 204, description = "It holds until its time is over.")),
)]
pub(crate) async fn grant(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Json(body): Json<PolicyGrant>,
) -> Result<StatusCode, ApiError> {
    state.sessions.widen(&id, body.rules, Duration::from_secs(body.seconds)).await?;
    Ok(StatusCode::NO_CONTENT)
}
