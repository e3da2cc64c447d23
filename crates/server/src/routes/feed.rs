//! What happened in all sessions, by page and as it happens.

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
use crate::extract::Query;
use crate::feed_stream::{self, Start};
use crate::event_page::{self, encode};
use crate::state::AppState;
use crate::wire::feed::{FeedPage, FeedQuery};

/// So many events are looked at, wanted or not, before a page ends early and says that there is more.
const MOST_STEPS: usize = 256;
/// So many events are read at a time.
const STEP: usize = 64;

/// `GET /v1/events`: what happened in all sessions behind `offset`. A page, or for who accepts `text/event-stream` events
/// as they happen.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "get_all_events",
    tag = "events",
    params(FeedQuery, ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last event that was seen; goes before `offset`. For streams.")),
    responses((status = 200, description = "A page of events, or events as they happen.", content(
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
    let everything = state.sessions.everything().await?;
    let at = match start(&everything, query.offset.as_deref())? {
        Start::At(spot) => spot,
        Start::Gap(spot) => return Err(not_there(&spot)),
    };
    let (wanted, limit) = (query.wanted()?, event_page::limit(query.limit));
    let include_raw = query.include_raw.unwrap_or(false);
    let body = tokio::task::spawn_blocking(move || read(&everything, at, limit, &wanted, include_raw)).await;
    let body = body.map_err(|_| ApiError::new(ProblemCode::Internal, "the page broke off"))??;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// `GET /v1/events/sse`: what happens in all sessions behind `Last-Event-ID` or `offset`, for as long as the server runs.
#[utoipa::path(
    get,
    path = "/v1/events/sse",
    operation_id = "get_all_events_sse",
    tag = "events",
    params(FeedQuery, ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last event that was seen; goes before `offset`.")),
    responses((status = 200, description = "Events as they happen.", body = Event, content_type = "text/event-stream")),
)]
pub(crate) async fn stream(
    State(state): State<AppState>,
    Query(query): Query<FeedQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    follow(&state, &query, &headers).await
}

async fn follow(state: &AppState, query: &FeedQuery, headers: &HeaderMap) -> Result<Response, ApiError> {
    let wanted = query.wanted()?;
    let everything = state.sessions.everything().await?;
    let seen = headers.get("last-event-id").and_then(|value| value.to_str().ok()).filter(|seen| !seen.is_empty());
    let start = start(&everything, seen.or(query.offset.as_deref()))?;
    Ok(feed_stream::follow(state, &everything, start, wanted, query.include_raw.unwrap_or(false)))
}

/// Where somebody who says `offset` goes on.
fn start(everything: &GlobalFeed, offset: Option<&str>) -> Result<Start, ApiError> {
    let spot: FeedCursor = match offset {
        None | Some("" | "0") => return Ok(Start::At(everything.beginning())),
        Some("now") => return Ok(Start::At(everything.end()?)),
        Some(text) => {
            text.parse().map_err(|error| ApiError::new(ProblemCode::InvalidRequest, format!("`offset`: {error}")))?
        }
    };
    Ok(if everything.holds(&spot)? { Start::At(spot) } else { Start::Gap(spot) })
}

fn not_there(spot: &FeedCursor) -> ApiError {
    let detail = format!("`{spot}` is no place among the events of this data directory; begin without an `offset`");
    ApiError::new(ProblemCode::InvalidRequest, detail)
}

/// The events behind `at` as `{"events": […], "hasMore": …, "nextOffset": …}`.
fn read(
    everything: &Arc<GlobalFeed>,
    mut at: FeedCursor,
    limit: usize,
    wanted: &FeedFilter,
    include_raw: bool,
) -> Result<Vec<u8>, ApiError> {
    let (mut events, mut bytes, mut more) = (Vec::new(), 0, true);
    for _ in 0..MOST_STEPS {
        if !more || events.len() >= limit || bytes > event_page::MAX_BYTES {
            break;
        }
        let batch = everything.read(at, STEP.min(limit - events.len()), wanted)?;
        (at, more) = (batch.at, batch.more);
        for entry in batch.entries {
            // What is lost is told to those who follow; a page holds what there is.
            if let FeedEntry::Event(_, event) = entry {
                events.push(encode(*event, include_raw));
                bytes += events.last().map_or(0, String::len);
            }
        }
    }
    let tail = format!(r#"],"hasMore":{more},"nextOffset":{}}}"#, json!(at.to_string()));
    Ok([br#"{"events":["#, events.join(",").as_bytes(), tail.as_bytes()].concat())
}
