//! What happened in a session, by page and as it happens.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use protocol::{Event, ProblemCode, SessionId};

use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::event_page::{self, Show};
use crate::state::AppState;
use crate::event_stream::{Until, follow};
use crate::wire::{EventPage, EventsQuery, StreamQuery};

/// `GET /v1/sessions/{session_id}/events`: what comes after `offset`.
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
    let show = Show::of(&state, query.events, query.include_raw);
    event_page::read(&*journal, query.offset.unwrap_or(0), query.limit, show)
}

/// `GET /v1/sessions/{session_id}/events/sse`: what comes after `Last-Event-ID` or `offset`, until the session
/// ends. Once it has and there is nothing more, 204: a browser then stops asking.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/events/sse",
    operation_id = "get_events_sse",
    tag = "events",
    params(("session_id" = SessionId, Path), StreamQuery, ("Last-Event-ID" = Option<u64>, Header, description = "Number of the last event that was seen; goes before `offset`.")),
    responses((status = 200, description = "Events as they happen.", body = Event, content_type = "text/event-stream"), (status = 204, description = "The session has ended, and everything was seen.")),
)]
pub(crate) async fn stream(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let offset = last_event_id(&headers)?.or(query.offset).unwrap_or(0);
    let journal = state.sessions.journal(&id)?;
    if event_page::is_over(&*journal, offset)? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let show = Show::of(&state, query.events, query.include_raw);
    Ok(follow(&state, journal, offset, Until::SessionEnds, show))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number
        .map(Some)
        .ok_or_else(|| ApiError::new(ProblemCode::InvalidRequest, "`Last-Event-ID` is not a sequence number"))
}
