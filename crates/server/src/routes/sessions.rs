//! Sessions as a whole.

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use protocol::{CreateSession, ProblemCode, SessionId, SessionInfo};
use session::SessionError;
use uuid::Uuid;

use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::{Json as Body, OptionalJson, Path, Query};
use crate::idempotency::Named;
use crate::pagination::ListQuery;
use crate::state::AppState;
use crate::wire::{Created, ForkBody, RenameBody, SessionList, SessionPolicy};

/// `GET /v1/sessions`: all of them, or a page when `limit` or `cursor` is given.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    operation_id = "list_sessions",
    tag = "sessions",
    params(ListQuery),
    responses((status = 200, description = "Newest first.", body = SessionList)),
)]
pub(crate) async fn list(
    State(state): State<AppState>,
    Query(query): Query<ListQuery>,
) -> Result<Json<SessionList>, ApiError> {
    let limit = query.limit();
    let cursor = query.cursor.map(|cursor| cursor.parse()).transpose();
    let cursor = cursor.map_err(|_| ApiError::new(ProblemCode::InvalidRequest, "`cursor` is no place in the list"))?;
    let page = state.sessions.list(cursor, limit)?;
    Ok(Json(SessionList { sessions: page.sessions, next_cursor: page.next.map(|next| next.to_string()) }))
}

/// `GET /v1/sessions/{session_id}`: one session.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}",
    operation_id = "get_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 200, description = "The session.", body = SessionInfo)),
)]
pub(crate) async fn show(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<Json<SessionInfo>, ApiError> {
    Ok(Json(state.sessions.get(&id)?))
}

/// `POST /v1/sessions/{session_id}`: makes it and starts its agent.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}",
    operation_id = "create_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = CreateSession,
    responses((status = 200, description = "It runs.", body = Created)),
)]
pub(crate) async fn create(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Extension(caller): Extension<Caller>,
    named: Option<Extension<Named>>,
    Body(request): Body<CreateSession>,
) -> Result<Json<Created>, ApiError> {
    let created = state.sessions.create(id, request, caller.options(&state.config.options)).await;
    let info = made(&state, named.as_deref(), created)?;
    Ok(Json(Created { healthy: true, native_session_id: info.native_session_id }))
}

/// `PATCH /v1/sessions/{session_id}`: another title.
#[utoipa::path(
    patch,
    path = "/v1/sessions/{session_id}",
    operation_id = "rename_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = RenameBody,
    responses((status = 200, description = "The session as it is now.", body = SessionInfo)),
)]
pub(crate) async fn rename(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Body(body): Body<RenameBody>,
) -> Result<Json<SessionInfo>, ApiError> {
    Ok(Json(state.sessions.rename(&id, body.title).await?))
}

/// `POST /v1/sessions/{session_id}/resume`: starts the agent of a session that sleeps.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/resume",
    operation_id = "resume_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 204, description = "Its agent runs.")),
)]
pub(crate) async fn resume(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<StatusCode, ApiError> {
    state.sessions.resume(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sessions/{session_id}/interrupt`: asks the agent to stop its turn.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/interrupt",
    operation_id = "interrupt_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 204, description = "The agent was asked to stop its turn.")),
)]
pub(crate) async fn interrupt(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<StatusCode, ApiError> {
    state.sessions.interrupt(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sessions/{session_id}/terminate`: twice is no error.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/terminate",
    operation_id = "terminate_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 204, description = "Every process of it is dead.")),
)]
pub(crate) async fn terminate(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<StatusCode, ApiError> {
    state.terminate(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sessions/{session_id}/fork`: a new session that goes on where this one stands; this one stays as it is.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/fork",
    operation_id = "fork_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = Option<ForkBody>,
    responses((status = 200, description = "The new session.", body = SessionInfo)),
)]
pub(crate) async fn fork(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    named: Option<Extension<Named>>,
    OptionalJson(body): OptionalJson<ForkBody>,
) -> Result<Json<SessionInfo>, ApiError> {
    let (new, title) = body.map_or((None, None), |body| (body.session_id, body.title));
    let new = new.map_or_else(|| fresh_id(named.as_deref()), Ok)?;
    made(&state, named.as_deref(), state.sessions.fork(&id, new, title).await).map(Json)
}

/// An id nobody chose: that of the request where it has a name, so that it makes the same session each time.
pub(crate) fn fresh_id(named: Option<&Named>) -> Result<SessionId, ApiError> {
    let fresh = || {
        let id = SessionId::new(Uuid::now_v7().to_string());
        id.map_err(|error| ApiError::new(ProblemCode::Internal, error.to_string()))
    };
    named.map_or_else(fresh, Named::session_id)
}

/// A session that was made; by this request, or by this very request before it was broken off.
pub(crate) fn made(
    state: &AppState,
    named: Option<&Named>,
    outcome: Result<SessionInfo, SessionError>,
) -> Result<SessionInfo, ApiError> {
    match (outcome, named) {
        (Err(SessionError::AlreadyExists(id)), Some(named)) if named.is_again() => {
            let there = state.sessions.get(&id)?;
            if named.has_made(&there) { Ok(there) } else { Err(SessionError::AlreadyExists(id).into()) }
        }
        (outcome, _) => Ok(outcome?),
    }
}

/// `DELETE /v1/sessions/{session_id}`: ends it if it runs, and forgets all of it but what it cost.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}",
    operation_id = "delete_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 204, description = "It is gone; its id is never used again.")),
)]
pub(crate) async fn remove(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<StatusCode, ApiError> {
    state.terminate(&id).await?;
    state.sessions.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/sessions/{session_id}/policy`: what it may do, and by what means each of it is enforced.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/policy",
    operation_id = "get_session_policy",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 200, description = "As it was told when its sandbox was made.", body = SessionPolicy)),
)]
pub(crate) async fn policy(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<Json<SessionPolicy>, ApiError> {
    let policy = state.sessions.policy(&id).await?;
    let keys = serde_json::to_value(policy.keys).unwrap_or_default();
    Ok(Json(SessionPolicy { backend: policy.backend, keys }))
}
