//! Handlers for open permission requests and questions, and for their answers.

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use protocol::{PermissionId, QuestionId, RequestMetadata, SessionId};
use serde_json::Value;
use session::{PendingRequest, SessionError};

use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::{Json as Body, Path, Query};
use crate::idempotency::IdempotentRequest;
use crate::pagination::{ListQuery, natural_order, paginate};
use crate::state::AppState;
use crate::wire::{AnswersBody, PendingList, PermissionBody};

/// `GET /v1/pending`: lists the open permission requests and questions of all sessions.
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

/// `GET /v1/sessions/{session_id}/pending`: lists the open permission requests and questions of a session.
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
    let key = |one: &PendingRequest| {
        format!("{} {} {}", one.asked_at, one.session_id, natural_order(&one.sequence.to_string()))
    };
    let (pending, next_cursor) = paginate(pending, query, key)?;
    Ok(Json(PendingList { pending, next_cursor }))
}

/// `POST …/permissions/{permission_id}/reply`: answers a permission request; a second answer fails with status 409.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/permissions/{permission_id}/reply",
    operation_id = "reply_permission",
    tag = "pending",
    params(("session_id" = SessionId, Path), ("permission_id" = PermissionId, Path)),
    request_body = PermissionBody,
    responses((status = 204, description = "The agent gets the answer.")),
)]
pub(crate) async fn permission(
    State(state): State<AppState>,
    Path((id, permission)): Path<(SessionId, PermissionId)>,
    Extension(caller): Extension<Caller>,
    idempotent: Option<Extension<IdempotentRequest>>,
    Body(body): Body<PermissionBody>,
) -> Result<StatusCode, ApiError> {
    let answered_by = Some(caller.description());
    match state.sessions.reply_permission_as(&id, &permission, body.reply, answered_by).await {
        Err(SessionError::PermissionNotPending(_)) if is_retry(idempotent.as_deref()) => {
            let resolved = state.sessions.permission(&id, &permission).await?;
            let status = resolved
                .filter(|resolved| is_answer_of_person(resolved.metadata.as_ref()))
                .map(|resolved| resolved.status);
            let same = status == Some(body.reply.into());
            if same { Ok(StatusCode::NO_CONTENT) } else { Err(SessionError::PermissionNotPending(permission).into()) }
        }
        outcome => Ok(outcome.map(|()| StatusCode::NO_CONTENT)?),
    }
}

/// `POST …/questions/{question_id}/reply`: answers a question; a second answer fails with status 409.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/questions/{question_id}/reply",
    operation_id = "reply_question",
    tag = "pending",
    params(("session_id" = SessionId, Path), ("question_id" = QuestionId, Path)),
    request_body = AnswersBody,
    responses((status = 204, description = "The agent gets the answer.")),
)]
pub(crate) async fn question(
    State(state): State<AppState>,
    Path((id, question)): Path<(SessionId, QuestionId)>,
    Extension(caller): Extension<Caller>,
    idempotent: Option<Extension<IdempotentRequest>>,
    Body(body): Body<AnswersBody>,
) -> Result<StatusCode, ApiError> {
    let (answers, answered_by) = (Some(body.answers.clone()), Some(caller.description()));
    let outcome = state.sessions.resolve_question_as(&id, &question, answers, answered_by).await;
    answered_or_repeated(&state, idempotent.as_deref(), &id, outcome, Some(body.answers)).await
}

/// `POST …/questions/{question_id}/reject`: rejects a question, which ends it without an answer.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/questions/{question_id}/reject",
    operation_id = "reject_question",
    tag = "pending",
    params(("session_id" = SessionId, Path), ("question_id" = QuestionId, Path)),
    responses((status = 204, description = "The agent gets the answer.")),
)]
pub(crate) async fn reject(
    State(state): State<AppState>,
    Path((id, question)): Path<(SessionId, QuestionId)>,
    Extension(caller): Extension<Caller>,
    idempotent: Option<Extension<IdempotentRequest>>,
) -> Result<StatusCode, ApiError> {
    let outcome = state.sessions.resolve_question_as(&id, &question, None, Some(caller.description())).await;
    answered_or_repeated(&state, idempotent.as_deref(), &id, outcome, None).await
}

/// Returns success if this request answered the question, now or in its interrupted first run.
async fn answered_or_repeated(
    state: &AppState,
    idempotent: Option<&IdempotentRequest>,
    id: &SessionId,
    outcome: Result<(), SessionError>,
    answers: Option<Vec<Vec<String>>>,
) -> Result<StatusCode, ApiError> {
    match outcome {
        Err(SessionError::QuestionNotPending(question)) if is_retry(idempotent) => {
            let resolved = state.sessions.question(id, &question).await?;
            let resolved = resolved.filter(|resolved| is_answer_of_person(resolved.metadata.as_ref()));
            let same = resolved.is_some_and(|resolved| resolved.answers == answers);
            if same { Ok(StatusCode::NO_CONTENT) } else { Err(SessionError::QuestionNotPending(question).into()) }
        }
        outcome => Ok(outcome.map(|()| StatusCode::NO_CONTENT)?),
    }
}

fn is_retry(idempotent: Option<&IdempotentRequest>) -> bool {
    idempotent.is_some_and(IdempotentRequest::is_retry)
}

/// Returns whether a person resolved the request: every other resolution records its reason.
fn is_answer_of_person(metadata: Option<&Value>) -> bool {
    RequestMetadata::read(metadata).reason.is_none()
}
