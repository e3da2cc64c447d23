//! Messages for an agent.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use protocol::SessionId;

use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::state::AppState;
use crate::stream::{Until, follow};
use crate::wire::{EventsQuery, MessageBody};

/// `POST /v1/sessions/{session_id}/messages`: taken and on record; what comes of it is in the events after
/// the number in `x-viv-sequence`.
pub(crate) async fn send(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Json(body): Json<MessageBody>,
) -> Result<Response, ApiError> {
    let accepted = state.sessions.send(&id, body.into()).await?;
    let turn = ("x-viv-turn-id", accepted.turn_id.to_string());
    let sequence = ("x-viv-sequence", accepted.sequence.to_string());
    Ok((StatusCode::NO_CONTENT, [turn, sequence]).into_response())
}

/// `POST /v1/sessions/{session_id}/messages/stream`: the events of its turn, up to its end or to the first
/// that a person must look at.
pub(crate) async fn stream(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<EventsQuery>,
    Json(body): Json<MessageBody>,
) -> Result<Response, ApiError> {
    let journal = state.sessions.journal(&id)?;
    let accepted = state.sessions.send(&id, body.into()).await?;
    let until = Until::TurnNeedsSomebody(accepted.turn_id);
    Ok(follow(&state, journal, accepted.sequence, until, query.include_raw.unwrap_or(false)))
}
