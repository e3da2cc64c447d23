//! What agents ask, and what they are told.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use protocol::{PermissionId, QuestionId, SessionId};

use crate::error::ApiError;
use crate::extract::{Json as Body, Path};
use crate::state::AppState;
use crate::wire::{AnswersBody, PendingList, PermissionBody};

/// `GET /v1/pending`: what any session waits for.
#[utoipa::path(
    get,
    path = "/v1/pending",
    operation_id = "list_all_pending",
    tag = "pending",
    responses((status = 200, description = "Oldest first.", body = PendingList)),
)]
pub(crate) async fn all_pending(State(state): State<AppState>) -> Json<PendingList> {
    Json(PendingList { pending: state.sessions.all_pending() })
}

/// `GET /v1/sessions/{session_id}/pending`: what it waits for.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/pending",
    operation_id = "list_pending",
    tag = "pending",
    params(("session_id" = SessionId, Path)),
    responses((status = 200, description = "Oldest first.", body = PendingList)),
)]
pub(crate) async fn pending(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<Json<PendingList>, ApiError> {
    Ok(Json(PendingList { pending: state.sessions.pending(&id)? }))
}

/// `POST …/permissions/{permission_id}/reply`: once; the second answer is a 409.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/permissions/{permission_id}/reply",
    operation_id = "reply_permission",
    tag = "pending",
    params(("session_id" = SessionId, Path), ("permission_id" = PermissionId, Path)),
    request_body = PermissionBody,
    responses((status = 204, description = "The agent is told.")),
)]
pub(crate) async fn permission(
    State(state): State<AppState>,
    Path((id, permission)): Path<(SessionId, PermissionId)>,
    Body(body): Body<PermissionBody>,
) -> Result<StatusCode, ApiError> {
    state.sessions.reply_permission(&id, &permission, body.reply).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST …/questions/{question_id}/reply`: once; the second answer is a 409.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/questions/{question_id}/reply",
    operation_id = "reply_question",
    tag = "pending",
    params(("session_id" = SessionId, Path), ("question_id" = QuestionId, Path)),
    request_body = AnswersBody,
    responses((status = 204, description = "The agent is told.")),
)]
pub(crate) async fn question(
    State(state): State<AppState>,
    Path((id, question)): Path<(SessionId, QuestionId)>,
    Body(body): Body<AnswersBody>,
) -> Result<StatusCode, ApiError> {
    state.sessions.reply_question(&id, &question, body.answers).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST …/questions/{question_id}/reject`: nobody will answer it.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/questions/{question_id}/reject",
    operation_id = "reject_question",
    tag = "pending",
    params(("session_id" = SessionId, Path), ("question_id" = QuestionId, Path)),
    responses((status = 204, description = "The agent is told.")),
)]
pub(crate) async fn reject(
    State(state): State<AppState>,
    Path((id, question)): Path<(SessionId, QuestionId)>,
) -> Result<StatusCode, ApiError> {
    state.sessions.reject_question(&id, &question).await?;
    Ok(StatusCode::NO_CONTENT)
}
