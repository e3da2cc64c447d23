//! What agents ask, and what they are told.

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use protocol::{PermissionId, QuestionId, SessionId};
use serde_json::Value;
use session::{PendingRequest, SessionError};

use crate::error::ApiError;
use crate::extract::{Json as Body, Path, Query};
use crate::idempotency::Named;
use crate::pagination::{ListQuery, cut, in_order};
use crate::state::AppState;
use crate::wire::{AnswersBody, PendingList, PermissionBody};

/// `GET /v1/pending`: what any session waits for.
#[utoipa::path(
    get,
    path = "/v1/pending",
    operation_id = "list_all_pending",
    tag = "pending",
    params(ListQuery),
    responses((status = 200, description = "Oldest first.", body = PendingList)),
)]
pub(crate) async fn all_pending(
    State(state): State<AppState>,
    Query(query): Query<ListQuery>,
) -> Result<Json<PendingList>, ApiError> {
    listed(state.sessions.all_pending(), &query)
}

/// `GET /v1/sessions/{session_id}/pending`: what it waits for.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/pending",
    operation_id = "list_pending",
    tag = "pending",
    params(("session_id" = SessionId, Path), ListQuery),
    responses((status = 200, description = "Oldest first.", body = PendingList)),
)]
pub(crate) async fn pending(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<ListQuery>,
) -> Result<Json<PendingList>, ApiError> {
    listed(state.sessions.pending(&id)?, &query)
}

fn listed(pending: Vec<PendingRequest>, query: &ListQuery) -> Result<Json<PendingList>, ApiError> {
    let key =
        |one: &PendingRequest| format!("{} {} {}", one.asked_at, one.session_id, in_order(&one.sequence.to_string()));
    let (pending, next_cursor) = cut(pending, query, key)?;
    Ok(Json(PendingList { pending, next_cursor }))
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
    named: Option<Extension<Named>>,
    Body(body): Body<PermissionBody>,
) -> Result<StatusCode, ApiError> {
    match state.sessions.reply_permission(&id, &permission, body.reply).await {
        Err(SessionError::PermissionNotPending(_)) if is_again(named.as_deref()) => {
            let stands = state.sessions.permission(&id, &permission).await?;
            let status = stands.filter(|stands| !has_reason(stands.metadata.as_ref())).map(|stands| stands.status);
            let same = status == Some(body.reply.into());
            if same { Ok(StatusCode::NO_CONTENT) } else { Err(SessionError::PermissionNotPending(permission).into()) }
        }
        outcome => Ok(outcome.map(|()| StatusCode::NO_CONTENT)?),
    }
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
    named: Option<Extension<Named>>,
    Body(body): Body<AnswersBody>,
) -> Result<StatusCode, ApiError> {
    let outcome = state.sessions.reply_question(&id, &question, body.answers.clone()).await;
    settled(&state, named.as_deref(), &id, outcome, Some(body.answers)).await
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
    named: Option<Extension<Named>>,
) -> Result<StatusCode, ApiError> {
    let outcome = state.sessions.reject_question(&id, &question).await;
    settled(&state, named.as_deref(), &id, outcome, None).await
}

/// A question was answered: by this request, or by this very request before it was broken off.
async fn settled(
    state: &AppState,
    named: Option<&Named>,
    id: &SessionId,
    outcome: Result<(), SessionError>,
    answers: Option<Vec<Vec<String>>>,
) -> Result<StatusCode, ApiError> {
    match outcome {
        Err(SessionError::QuestionNotPending(question)) if is_again(named) => {
            let stands = state.sessions.question(id, &question).await?;
            let stands = stands.filter(|stands| !has_reason(stands.metadata.as_ref()));
            let same = stands.is_some_and(|stands| stands.answers == answers);
            if same { Ok(StatusCode::NO_CONTENT) } else { Err(SessionError::QuestionNotPending(question).into()) }
        }
        outcome => Ok(outcome.map(|()| StatusCode::NO_CONTENT)?),
    }
}

fn is_again(named: Option<&Named>) -> bool {
    named.is_some_and(Named::is_again)
}

/// Whether something was resolved for a reason, and by nobody.
fn has_reason(metadata: Option<&Value>) -> bool {
    metadata.is_some_and(|metadata| !metadata["reason"].is_null())
}
