//! Handlers for messages to an agent.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use protocol::{Event, ProblemCode, SessionId};
use session::UserMessage;

use crate::error::ApiError;
use crate::event_page::EventView;
use crate::event_stream::{StreamEnd, follow_session};
use crate::extract::{Json, Path, Query};
use crate::state::AppState;
use crate::wire::{MessageBody, RawQuery};

/// Most bytes of a client's message id.
const MAX_ID: usize = 255;

/// `POST /v1/sessions/{session_id}/messages`: sends a message. It is recorded when the call returns; the reply is in the
/// events after the sequence number in `x-viv-sequence`.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/messages",
    operation_id = "post_message",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = MessageBody,
    responses((status = 204, description = "The message is accepted and recorded.")),
)]
pub(crate) async fn send(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    headers: HeaderMap,
    Json(body): Json<MessageBody>,
) -> Result<Response, ApiError> {
    let accepted = state.sessions.send(&id, user_message(body, &headers)?).await?;
    let turn = ("x-viv-turn-id", accepted.turn_id.to_string());
    let sequence = ("x-viv-sequence", accepted.sequence.to_string());
    Ok((StatusCode::NO_CONTENT, [turn, sequence]).into_response())
}

/// `POST /v1/sessions/{session_id}/messages/stream`: sends a message and streams the events of its turn, up to the end of
/// the turn or the first event that needs a person.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/messages/stream",
    operation_id = "post_message_stream",
    tag = "sessions",
    params(("session_id" = SessionId, Path), RawQuery),
    request_body = MessageBody,
    responses((status = 200, description = "Events of the turn, up to its end or to the first event that needs a person.", body = Event, content_type = "text/event-stream")),
)]
pub(crate) async fn stream(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<RawQuery>,
    headers: HeaderMap,
    Json(body): Json<MessageBody>,
) -> Result<Response, ApiError> {
    let journal = state.sessions.journal(&id)?;
    let accepted = state.sessions.send(&id, user_message(body, &headers)?).await?;
    let end = StreamEnd::TurnNeedsPerson(accepted.turn_id);
    let view = EventView::new(&state, query.events, query.include_raw);
    Ok(follow_session(&state, journal, accepted.sequence, end, view))
}

/// Returns the message. Its id is `clientMessageId`, or `Idempotency-Key` if that is absent; equal ids are accepted once.
fn user_message(body: MessageBody, headers: &HeaderMap) -> Result<UserMessage, ApiError> {
    let mut message = UserMessage::from(body);
    if message.client_message_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > MAX_ID) {
        let detail = format!("`clientMessageId` must have 1 to {MAX_ID} bytes");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail));
    }
    if let (None, Some(key)) = (&message.client_message_id, headers.get("idempotency-key")) {
        let bad =
            |_| ApiError::new(ProblemCode::InvalidRequest, "`Idempotency-Key` must have visible ASCII characters only");
        message.client_message_id = Some(key.to_str().map_err(bad)?.to_owned());
    }
    Ok(message)
}
