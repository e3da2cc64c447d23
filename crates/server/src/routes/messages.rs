//! Messages for an agent.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use protocol::{Event, ProblemCode, SessionId};
use session::UserMessage;

use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::event_page::Show;
use crate::state::AppState;
use crate::event_stream::{Until, follow};
use crate::wire::{MessageBody, RawQuery};

/// The longest name a client gives a message.
const MAX_NAME: usize = 255;

/// `POST /v1/sessions/{session_id}/messages`: taken and on record; what comes of it is in the events after
/// the number in `x-viv-sequence`.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/messages",
    operation_id = "post_message",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = MessageBody,
    responses((status = 204, description = "Taken, and on record.")),
)]
pub(crate) async fn send(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    headers: HeaderMap,
    Json(body): Json<MessageBody>,
) -> Result<Response, ApiError> {
    let accepted = state.sessions.send(&id, named(body, &headers)?).await?;
    let turn = ("x-viv-turn-id", accepted.turn_id.to_string());
    let sequence = ("x-viv-sequence", accepted.sequence.to_string());
    Ok((StatusCode::NO_CONTENT, [turn, sequence]).into_response())
}

/// `POST /v1/sessions/{session_id}/messages/stream`: the events of its turn, up to its end or to the first
/// that a person must look at.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/messages/stream",
    operation_id = "post_message_stream",
    tag = "sessions",
    params(("session_id" = SessionId, Path), RawQuery),
    request_body = MessageBody,
    responses((status = 200, description = "Events of the turn, up to its end or to the first a person must look at.", body = Event, content_type = "text/event-stream")),
)]
pub(crate) async fn stream(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<RawQuery>,
    headers: HeaderMap,
    Json(body): Json<MessageBody>,
) -> Result<Response, ApiError> {
    let journal = state.sessions.journal(&id)?;
    let accepted = state.sessions.send(&id, named(body, &headers)?).await?;
    let until = Until::TurnNeedsSomebody(accepted.turn_id);
    let show = Show::of(&state, query.events, query.include_raw);
    Ok(follow(&state, journal, accepted.sequence, until, show))
}

/// A message that is sent twice is taken once: `Idempotency-Key` names it when its body does not.
fn named(body: MessageBody, headers: &HeaderMap) -> Result<UserMessage, ApiError> {
    let mut message = UserMessage::from(body);
    if message.client_message_id.as_ref().is_some_and(|name| name.is_empty() || name.len() > MAX_NAME) {
        let detail = format!("`clientMessageId` has 1 to {MAX_NAME} bytes");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail));
    }
    if let (None, Some(key)) = (&message.client_message_id, headers.get("idempotency-key")) {
        let bad =
            |_| ApiError::new(ProblemCode::InvalidRequest, "`Idempotency-Key` is made of visible ASCII characters");
        message.client_message_id = Some(key.to_str().map_err(bad)?.to_owned());
    }
    Ok(message)
}
