//! Handlers for the message queue of a session.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use protocol::{SessionId, TurnId};
use session::QueuedMessage;

use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::pagination::{ListQuery, natural_order, paginate};
use crate::state::AppState;
use crate::wire::MessageList;

/// `GET …/queue`: lists the queued messages.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/queue",
    operation_id = "list_queue",
    tag = "sessions",
    params(("session_id" = SessionId, Path), ListQuery),
    responses((status = 200, description = "The queued messages, the next one first.", body = MessageList)),
)]
pub(crate) async fn list(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<ListQuery>,
) -> Result<Json<MessageList>, ApiError> {
    let (messages, next_cursor) = paginate(state.sessions.queue(&id).await?, &query, queue_order)?;
    Ok(Json(MessageList { messages, next_cursor }))
}

/// `DELETE …/queue/{turn_id}`: removes a queued message, so that its turn never starts.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}/queue/{turn_id}",
    operation_id = "remove_queued_message",
    tag = "sessions",
    params(("session_id" = SessionId, Path), ("turn_id" = TurnId, Path)),
    responses((status = 204, description = "The message is removed.")),
)]
pub(crate) async fn remove(
    State(state): State<AppState>,
    Path((id, turn)): Path<(SessionId, TurnId)>,
) -> Result<StatusCode, ApiError> {
    state.sessions.unqueue(&id, &turn).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the sort key of a queued message: messages that steer come first, the latest of them before the others.
fn queue_order(queued: &QueuedMessage) -> String {
    let order = if queued.steers { u64::MAX - queued.sequence } else { queued.sequence };
    format!("{} {}", u8::from(!queued.steers), natural_order(&order.to_string()))
}
