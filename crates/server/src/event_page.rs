//! Pages of a session's events, in bounded memory.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use protocol::{Event, EventBody};
use session::SessionError;
use store::Journal;

use crate::error::ApiError;
use crate::event_filter::EventFilter;
use crate::state::AppState;

/// A page of this size ends early with `hasMore`. It is the only bound of a page without `limit`.
pub(crate) const MAX_BYTES: usize = 8 << 20;
/// Events to read at a time.
const STEP: usize = 64;

/// The events, and the parts of them, that a client gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventView {
    /// The event filter.
    pub(crate) filter: EventFilter,
    /// Whether to include the agent's raw output.
    pub(crate) include_raw: bool,
}

impl EventView {
    /// Returns the view that a client asked for; the server's default where it asked for none.
    pub(crate) fn new(state: &AppState, events: Option<EventFilter>, raw: Option<bool>) -> Self {
        Self { filter: events.unwrap_or(state.config.events), include_raw: raw.unwrap_or(false) }
    }
}

/// Returns the events after `offset` as `{"events": […], "hasMore": …}`.
pub(crate) fn read(
    journal: &dyn Journal,
    offset: u64,
    limit: Option<u64>,
    view: EventView,
) -> Result<Response, ApiError> {
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let last = *journal.last().borrow();
    let (mut body, mut seen, mut count) = (Vec::from(br#"{"events":["#), offset, 0);
    'page: while count < limit {
        let events = journal.after(seen, STEP.min(limit - count)).map_err(SessionError::from)?;
        if events.is_empty() {
            break;
        }
        for event in events {
            seen = event.sequence;
            if !view.filter.includes(&event) {
                continue;
            }
            if count > 0 {
                body.push(b',');
            }
            count += 1;
            body.extend(encode(event, view.include_raw).into_bytes());
            if body.len() > MAX_BYTES {
                break 'page;
            }
        }
    }
    body.extend(format!(r#"],"hasMore":{}}}"#, seen < last).into_bytes());
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Returns whether the session has ended and has no events after `offset`.
pub(crate) fn has_ended(journal: &dyn Journal, offset: u64) -> Result<bool, ApiError> {
    let last = *journal.last().borrow();
    if offset < last {
        return Ok(false);
    }
    let end = journal.after(last.saturating_sub(1), 1).map_err(SessionError::from)?;
    Ok(end.first().is_some_and(|event| matches!(event.draft.body, EventBody::SessionEnded(_))))
}

/// Returns an event as JSON, with the agent's raw output if `include_raw`.
pub(crate) fn encode(mut event: Event, include_raw: bool) -> String {
    if !include_raw {
        event.draft.raw = None;
    }
    // Events always serialize, because they were parsed from JSON.
    serde_json::to_string(&event).unwrap_or_default()
}
