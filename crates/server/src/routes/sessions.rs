//! Sessions as a whole.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use protocol::{Code, CreateSession, SessionId, SessionInfo};

use crate::error::ApiError;
use crate::extract::{Json as Body, Path, Query};
use crate::state::AppState;
use crate::wire::{Created, ListQuery, RenameBody, SessionList};

/// `GET /v1/sessions`: all of them, or a page when `limit` or `cursor` is given.
pub(crate) async fn list(
    State(state): State<AppState>,
    Query(query): Query<ListQuery>,
) -> Result<Json<SessionList>, ApiError> {
    let cursor = query.cursor.map(|cursor| cursor.parse()).transpose();
    let cursor = cursor.map_err(|_| ApiError::new(Code::InvalidRequest, "`cursor` is no place in the list"))?;
    let page = state.sessions.list(cursor, query.limit.unwrap_or(usize::MAX))?;
    Ok(Json(SessionList { sessions: page.sessions, next_cursor: page.next.map(|next| next.to_string()) }))
}

/// `GET /v1/sessions/{session_id}`
pub(crate) async fn show(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<Json<SessionInfo>, ApiError> {
    Ok(Json(state.sessions.get(&id)?))
}

/// `POST /v1/sessions/{session_id}`: makes it and starts its agent.
pub(crate) async fn create(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Body(request): Body<CreateSession>,
) -> Result<Json<Created>, ApiError> {
    let info = state.sessions.create(id, request, state.config.options.clone()).await?;
    Ok(Json(Created { healthy: true, native_session_id: info.native_session_id }))
}

/// `PATCH /v1/sessions/{session_id}`: another title.
pub(crate) async fn rename(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Body(body): Body<RenameBody>,
) -> Result<Json<SessionInfo>, ApiError> {
    Ok(Json(state.sessions.rename(&id, body.title).await?))
}

/// `POST /v1/sessions/{session_id}/resume`: starts the agent of a session that sleeps.
pub(crate) async fn resume(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<StatusCode, ApiError> {
    state.sessions.resume(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sessions/{session_id}/interrupt`: asks the agent to stop its turn.
pub(crate) async fn interrupt(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<StatusCode, ApiError> {
    state.sessions.interrupt(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sessions/{session_id}/terminate`: twice is no error.
pub(crate) async fn terminate(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<StatusCode, ApiError> {
    state.sessions.terminate(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
