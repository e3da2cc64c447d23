//! Handlers for sessions: list, create, rename, resume, interrupt, terminate, fork, delete and policy.

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use protocol::{CreateSession, ProblemCode, SessionId, SessionInfo};
use session::SessionError;
use uuid::Uuid;

use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::{Json as Body, OptionalJson, Path, Query};
use crate::idempotency::IdempotentRequest;
use crate::pagination::ListQuery;
use crate::routes::agents::install_missing;
use crate::session_query::SessionQuery;
use crate::state::AppState;
use crate::wire::{CreatedSession, ForkBody, SessionList, SessionPolicy, UpdateBody};

/// `GET /v1/sessions`: lists the sessions that meet all conditions, or a page of them if `limit` or `cursor` is given.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    operation_id = "list_sessions",
    tag = "sessions",
    params(ListQuery, SessionQuery),
    responses((status = 200, description = "Newest first.", body = SessionList)),
)]
pub(crate) async fn list(
    State(state): State<AppState>,
    Query(query): Query<ListQuery>,
    Query(conditions): Query<SessionQuery>,
) -> Result<Json<SessionList>, ApiError> {
    let limit = query.limit();
    let filter = conditions.filter()?;
    let cursor = query.cursor.map(|cursor| cursor.parse()).transpose();
    let cursor = cursor.map_err(|_| ApiError::new(ProblemCode::InvalidRequest, "invalid `cursor`"))?;
    let page = state.sessions.list_filtered(&filter, cursor, limit)?;
    Ok(Json(SessionList { sessions: page.sessions, next_cursor: page.next.map(|next| next.to_string()) }))
}

/// `GET /v1/sessions/{session_id}`: returns a session.
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

/// `POST /v1/sessions/{session_id}`: creates a session and starts its agent. Installs a known agent that is not installed,
/// which can take minutes.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}",
    operation_id = "create_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = CreateSession,
    responses((status = 200, description = "The session is running.", body = CreatedSession)),
)]
pub(crate) async fn create(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Extension(caller): Extension<Caller>,
    idempotent: Option<Extension<IdempotentRequest>>,
    Body(request): Body<CreateSession>,
) -> Result<Json<CreatedSession>, ApiError> {
    let options = caller.billing(&request, caller.options(&state.config.options))?;
    let created = match state.sessions.create(id.clone(), request.clone(), options.clone()).await {
        Err(missing @ SessionError::NotInstalled { .. }) => {
            install_missing(&state, &caller, &request, missing).await?;
            state.sessions.create(id, request, options).await
        }
        outcome => outcome,
    };
    let info = created_or_existing(&state, idempotent.as_deref(), created)?;
    Ok(Json(CreatedSession { healthy: true, native_session_id: info.native_session_id }))
}

/// `PATCH /v1/sessions/{session_id}`: changes title, labels or metadata of a session.
#[utoipa::path(
    patch,
    path = "/v1/sessions/{session_id}",
    operation_id = "rename_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = UpdateBody,
    responses((status = 200, description = "The changed session.", body = SessionInfo)),
)]
pub(crate) async fn rename(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Body(body): Body<UpdateBody>,
) -> Result<Json<SessionInfo>, ApiError> {
    let labels = state.sessions.get(&id)?.labels;
    Ok(Json(state.sessions.update(&id, body.onto(labels)).await?))
}

/// `POST /v1/sessions/{session_id}/resume`: starts the agent of a sleeping session.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/resume",
    operation_id = "resume_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 204, description = "The agent is running.")),
)]
pub(crate) async fn resume(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<StatusCode, ApiError> {
    state.sessions.resume(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sessions/{session_id}/interrupt`: interrupts the running turn.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/interrupt",
    operation_id = "interrupt_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 204, description = "The interrupt was sent to the agent.")),
)]
pub(crate) async fn interrupt(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<StatusCode, ApiError> {
    state.sessions.interrupt(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sessions/{session_id}/terminate`: ends a session; ending it twice is not an error.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/terminate",
    operation_id = "terminate_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 204, description = "All processes of the session are dead.")),
)]
pub(crate) async fn terminate(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<StatusCode, ApiError> {
    state.terminate(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sessions/{session_id}/fork`: creates a session that continues this conversation; this session is unchanged.
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
    idempotent: Option<Extension<IdempotentRequest>>,
    OptionalJson(body): OptionalJson<ForkBody>,
) -> Result<Json<SessionInfo>, ApiError> {
    let (new, title) = body.map_or((None, None), |body| (body.session_id, body.title));
    let new = new.map_or_else(|| new_session_id(idempotent.as_deref()), Ok)?;
    created_or_existing(&state, idempotent.as_deref(), state.sessions.fork(&id, new, title).await).map(Json)
}

/// Returns a new id. With an idempotency key it is derived from the key, so that a repeated request creates the same
/// session.
pub(crate) fn new_session_id(idempotent: Option<&IdempotentRequest>) -> Result<SessionId, ApiError> {
    let fresh = || {
        let id = SessionId::new(Uuid::now_v7().to_string());
        id.map_err(|error| ApiError::new(ProblemCode::Internal, error.to_string()))
    };
    idempotent.map_or_else(fresh, IdempotentRequest::session_id)
}

/// Returns the session that this request created, now or in its interrupted first run.
pub(crate) fn created_or_existing(
    state: &AppState,
    idempotent: Option<&IdempotentRequest>,
    outcome: Result<SessionInfo, SessionError>,
) -> Result<SessionInfo, ApiError> {
    match (outcome, idempotent) {
        (Err(SessionError::AlreadyExists(id)), Some(idempotent)) if idempotent.is_retry() => {
            let existing = state.sessions.get(&id)?;
            if idempotent.created(&existing) { Ok(existing) } else { Err(SessionError::AlreadyExists(id).into()) }
        }
        (outcome, _) => Ok(outcome?),
    }
}

/// `DELETE /v1/sessions/{session_id}`: ends and deletes a session; billing records are kept.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}",
    operation_id = "delete_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 204, description = "The session is deleted; its id is never used again.")),
)]
pub(crate) async fn remove(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<StatusCode, ApiError> {
    state.terminate(&id).await?;
    state.sessions.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/sessions/{session_id}/policy`: returns the policy of the session and the means of enforcement of each key.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/policy",
    operation_id = "get_session_policy",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 200, description = "The policy, as reported when the sandbox was made.", body = SessionPolicy)),
)]
pub(crate) async fn policy(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<Json<SessionPolicy>, ApiError> {
    let policy = state.sessions.policy(&id).await?;
    Ok(Json(SessionPolicy { backend: policy.backend, keys: policy.keys }))
}
