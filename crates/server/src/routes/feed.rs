//! Handlers for the event feed of all sessions: pages and live streams.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use protocol::{Event, ProblemCode};
use serde_json::json;
use session::{FeedEntry, FeedFilter, GlobalFeed};
use store::FeedCursor;

use crate::error::ApiError;
use crate::event_page::{self, encode};
use crate::event_stream::{FeedStart, follow_feed};
use crate::extract::Query;
use crate::state::AppState;
use crate::wire::feed::{FeedPage, FeedQuery};

/// Most reads for one page. After that the page ends early with `hasMore`.
const MAX_STEPS: usize = 256;
/// Events to read at a time.
const STEP: usize = 64;

/// `GET /v1/events`: returns the events of all sessions after `offset`, as a page, or as a live stream if the client
/// accepts `text/event-stream`.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "get_all_events",
    tag = "events",
    params(FeedQuery, ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last event received; overrides `offset`. For streams.")),
    responses((status = 200, description = "A page of events, or live events.", content(
        (FeedPage = "application/json"), (Event = "text/event-stream"),
    ))),
)]
pub(crate) async fn page(
    State(state): State<AppState>,
    Query(query): Query<FeedQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts.contains("text/event-stream") {
        return follow(&state, &query, &headers).await;
    }
    let feed = state.sessions.global_feed().await?;
    let cursor = match start(&feed, query.offset.as_deref())? {
        FeedStart::After(cursor) => cursor,
        FeedStart::Gap(unknown) => return Err(unknown_offset(&unknown)),
    };
    let (filter, limit) = (query.filter()?, query.limit());
    let include_raw = query.include_raw.unwrap_or(false);
    let body = tokio::task::spawn_blocking(move || read(&feed, cursor, limit, &filter, include_raw)).await;
    let body = body.map_err(|_| ApiError::new(ProblemCode::Internal, "reading the page was interrupted"))??;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// `GET /v1/events/sse`: streams the events of all sessions after `Last-Event-ID` or `offset`, as long as the server runs.
#[utoipa::path(
    get,
    path = "/v1/events/sse",
    operation_id = "get_all_events_sse",
    tag = "events",
    params(FeedQuery, ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last event received; overrides `offset`.")),
    responses((status = 200, description = "Live events.", body = Event, content_type = "text/event-stream")),
)]
pub(crate) async fn stream(
    State(state): State<AppState>,
    Query(query): Query<FeedQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    follow(&state, &query, &headers).await
}

async fn follow(state: &AppState, query: &FeedQuery, headers: &HeaderMap) -> Result<Response, ApiError> {
    let filter = query.filter()?;
    let feed = state.sessions.global_feed().await?;
    let last_id = headers.get("last-event-id").and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty());
    let start = start(&feed, last_id.or(query.offset.as_deref()))?;
    Ok(follow_feed(state, &feed, start, filter, query.include_raw.unwrap_or(false)))
}

/// Returns the start for a client's `offset`; fails if it is not a cursor.
fn start(feed: &GlobalFeed, offset: Option<&str>) -> Result<FeedStart, ApiError> {
    let cursor: FeedCursor = match offset {
        None | Some("" | "0") => return Ok(FeedStart::After(feed.beginning())),
        Some("now") => return Ok(FeedStart::After(feed.end()?)),
        Some(text) => {
            text.parse().map_err(|error| ApiError::new(ProblemCode::InvalidRequest, format!("`offset`: {error}")))?
        }
    };
    Ok(if feed.holds(&cursor)? { FeedStart::After(cursor) } else { FeedStart::Gap(cursor) })
}

fn unknown_offset(cursor: &FeedCursor) -> ApiError {
    let detail = format!("unknown `offset` `{cursor}` in this data directory; start without `offset`");
    ApiError::new(ProblemCode::InvalidRequest, detail)
}

/// Returns the events after `cursor` as `{"events": […], "hasMore": …, "nextOffset": …}`.
fn read(
    feed: &Arc<GlobalFeed>,
    mut cursor: FeedCursor,
    limit: usize,
    filter: &FeedFilter,
    include_raw: bool,
) -> Result<Vec<u8>, ApiError> {
    let (mut events, mut bytes, mut more) = (Vec::new(), 0, true);
    for _ in 0..MAX_STEPS {
        if !more || events.len() >= limit || bytes > event_page::MAX_BYTES {
            break;
        }
        let batch = feed.read(cursor, STEP.min(limit - events.len()), filter)?;
        (cursor, more) = (batch.cursor, batch.more);
        for entry in batch.entries {
            // Only streams report lost events.
            if let FeedEntry::Event(_, event) = entry {
                events.push(encode(*event, include_raw));
                bytes += events.last().map_or(0, String::len);
            }
        }
    }
    let tail = format!(r#"],"hasMore":{more},"nextOffset":{}}}"#, json!(cursor.to_string()));
    Ok([br#"{"events":["#, events.join(",").as_bytes(), tail.as_bytes()].concat())
}
