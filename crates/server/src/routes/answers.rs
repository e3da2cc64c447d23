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
pub(crate) async fn all_pending(State(state): State<AppState>) -> Json<PendingList> {
    Json(PendingList { pending: state.sessions.all_pending() })
}

/// `GET /v1/sessions/{session_id}/pending`: what it waits for.
pub(crate) async fn pending(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<Json<PendingList>, ApiError> {
    Ok(Json(PendingList { pending: state.sessions.pending(&id)? }))
}

/// `POST …/permissions/{permission_id}/reply`: once; the second answer is a 409.
pub(crate) async fn permission(
    State(state): State<AppState>,
    Path((id, permission)): Path<(SessionId, PermissionId)>,
    Body(body): Body<PermissionBody>,
) -> Result<StatusCode, ApiError> {
    state.sessions.reply_permission(&id, &permission, body.reply).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST …/questions/{question_id}/reply`: once; the second answer is a 409.
pub(crate) async fn question(
    State(state): State<AppState>,
    Path((id, question)): Path<(SessionId, QuestionId)>,
    Body(body): Body<AnswersBody>,
) -> Result<StatusCode, ApiError> {
    state.sessions.reply_question(&id, &question, body.answers).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST …/questions/{question_id}/reject`
pub(crate) async fn reject(
    State(state): State<AppState>,
    Path((id, question)): Path<(SessionId, QuestionId)>,
) -> Result<StatusCode, ApiError> {
    state.sessions.reject_question(&id, &question).await?;
    Ok(StatusCode::NO_CONTENT)
}
