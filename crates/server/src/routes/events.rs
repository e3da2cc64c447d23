//! Handlers for the events of a session: pages and live streams.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use protocol::{Event, ProblemCode, SessionId};

use crate::error::ApiError;
use crate::event_page::{self, EventView};
use crate::event_stream::{StreamEnd, empty_stream, follow_session};
use crate::extract::{Path, Query};
use crate::state::AppState;
use crate::wire::{EventPage, EventsQuery, StreamQuery};

/// `GET /v1/sessions/{session_id}/events`: returns a page of the events after `offset`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/events",
    operation_id = "get_events",
    tag = "events",
    params(("session_id" = SessionId, Path), EventsQuery),
    responses((status = 200, description = "A page of events.", body = EventPage)),
)]
pub(crate) async fn page(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<EventsQuery>,
) -> Result<Response, ApiError> {
    let journal = state.sessions.journal(&id)?;
    let view = EventView::new(&state, query.events, query.include_raw);
    event_page::read(&*journal, query.offset.unwrap_or(0), query.limit, view)
}

/// `GET /v1/sessions/{session_id}/events/sse`: streams the events after `Last-Event-ID` or `offset` until the session
/// ends. If it has ended and there are no more events, the stream is empty. A browser that reconnects with
/// `Last-Event-ID` gets 204 then, so that it stops reconnecting.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/events/sse",
    operation_id = "get_events_sse",
    tag = "events",
    params(("session_id" = SessionId, Path), StreamQuery, ("Last-Event-ID" = Option<u64>, Header, description = "Sequence number of the last event received; overrides `offset`.")),
    responses((status = 200, description = "Live events.", body = Event, content_type = "text/event-stream"), (status = 204, description = "The request has `Last-Event-ID`, the session has ended, and there are no more events.")),
)]
pub(crate) async fn stream(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let last_id = last_event_id(&headers)?;
    let offset = last_id.or(query.offset).unwrap_or(0);
    let journal = state.sessions.journal(&id)?;
    let view = EventView::new(&state, query.events, query.include_raw);
    match (event_page::has_ended(&*journal, offset)?, last_id) {
        (true, Some(_)) => Ok(StatusCode::NO_CONTENT.into_response()),
        (true, None) => Ok(empty_stream(&state)),
        (false, _) => Ok(follow_session(&state, journal, offset, StreamEnd::SessionEnded, view)),
    }
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        ApiError::new(ProblemCode::InvalidRequest, "invalid `Last-Event-ID`: expected a sequence number")
    })
}
