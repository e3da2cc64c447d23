//! A page of events, in bounded memory whatever is in the journal.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use protocol::{Event, EventBody};
use session::SessionError;
use store::Journal;

use crate::error::ApiError;
use crate::state::AppState;
use crate::event_filter::EventFilter;

/// Events of a page nobody gave a limit for, and of the largest anybody can ask for.
const DEFAULT_EVENTS: usize = 1000;
const MAX_EVENTS: usize = 10_000;
/// A page that has grown this large ends early, and says that there is more.
pub(crate) const MAX_BYTES: usize = 8 << 20;
/// So many events are read at a time.
const STEP: usize = 64;

/// What of events a client is served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Show {
    /// Which of them.
    pub(crate) events: EventFilter,
    /// With what the agent printed itself.
    pub(crate) raw: bool,
}

impl Show {
    /// What a client asked for, or else what the server was started with.
    pub(crate) fn of(state: &AppState, events: Option<EventFilter>, raw: Option<bool>) -> Self {
        Self { events: events.unwrap_or(state.config.events), raw: raw.unwrap_or(false) }
    }
}

/// The events after `offset` as `{"events": […], "hasMore": …}`.
pub(crate) fn read(journal: &dyn Journal, offset: u64, limit: Option<u64>, show: Show) -> Result<Response, ApiError> {
    let limit = self::limit(limit);
    let last = *journal.last().borrow();
    let (mut body, mut seen, mut count) = (Vec::from(br#"{"events":["#), offset, 0);
    'page: while count < limit {
        let events = journal.after(seen, STEP.min(limit - count)).map_err(SessionError::from)?;
        if events.is_empty() {
            break;
        }
        for event in events {
            seen = event.sequence;
            if !show.events.has(&event) {
                continue;
            }
            if count > 0 {
                body.push(b',');
            }
            count += 1;
            body.extend(encode(event, show.raw).into_bytes());
            if body.len() > MAX_BYTES {
                break 'page;
            }
        }
    }
    body.extend(format!(r#"],"hasMore":{}}}"#, seen < last).into_bytes());
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// So many events a page has at most, if a client asks for `limit`.
pub(crate) fn limit(limit: Option<u64>) -> usize {
    limit.map_or(DEFAULT_EVENTS, |limit| usize::try_from(limit).unwrap_or(MAX_EVENTS).clamp(1, MAX_EVENTS))
}

/// Whether the session has ended, and nothing is recorded after `offset`.
pub(crate) fn is_over(journal: &dyn Journal, offset: u64) -> Result<bool, ApiError> {
    let last = *journal.last().borrow();
    if offset < last {
        return Ok(false);
    }
    let end = journal.after(last.saturating_sub(1), 1).map_err(SessionError::from)?;
    Ok(end.first().is_some_and(|event| matches!(event.draft.body, EventBody::SessionEnded(_))))
}

/// One event as JSON; what the agent printed only when asked for.
pub(crate) fn encode(mut event: Event, include_raw: bool) -> String {
    if !include_raw {
        event.draft.raw = None;
    }
    // Events come from JSON and go back to it: they always serialize.
    serde_json::to_string(&event).unwrap_or_default()
}
