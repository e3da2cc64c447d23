//! Messages that wait for their turn.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use protocol::{SessionId, TurnId};
use session::QueuedMessage;

use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::pagination::{ListQuery, cut, in_order};
use crate::state::AppState;
use crate::wire::MessageList;

/// `GET …/queue`: the messages that wait for their turn.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/queue",
    operation_id = "list_queue",
    tag = "sessions",
    params(("session_id" = SessionId, Path), ListQuery),
    responses((status = 200, description = "The next one first.", body = MessageList)),
)]
pub(crate) async fn list(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<ListQuery>,
) -> Result<Json<MessageList>, ApiError> {
    let (messages, next_cursor) = cut(state.sessions.queue(&id).await?, &query, place)?;
    Ok(Json(MessageList { messages, next_cursor }))
}

/// `DELETE …/queue/{turn_id}`: takes it out; its turn never starts.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}/queue/{turn_id}",
    operation_id = "remove_queued_message",
    tag = "sessions",
    params(("session_id" = SessionId, Path), ("turn_id" = TurnId, Path)),
    responses((status = 204, description = "It waits no more.")),
)]
pub(crate) async fn remove(
    State(state): State<AppState>,
    Path((id, turn)): Path<(SessionId, TurnId)>,
) -> Result<StatusCode, ApiError> {
    state.sessions.unqueue(&id, &turn).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Orders messages as they wait: of those that steer, the last one comes first.
fn place(queued: &QueuedMessage) -> String {
    let order = if queued.steers { u64::MAX - queued.sequence } else { queued.sequence };
    format!("{} {}", u8::from(!queued.steers), in_order(&order.to_string()))
}
