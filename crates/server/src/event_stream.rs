//! Live event streams as server-sent events: the events of one session, or the event feed of all sessions.
//!
//! A stream reads from the journal and waits for it to grow. It holds one small batch, so a slow client delays no other
//! client. The id of a frame is its cursor, so a client that reconnects with `Last-Event-ID` gets exactly the events it
//! missed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use http::HeaderValue;
use http::header::CACHE_CONTROL;
use protocol::{Event, EventBody, RequestMetadata, TurnId};
use serde_json::json;
use session::{FeedEntry, FeedFilter, FeedFollower, GlobalFeed};
use store::{FeedCursor, Journal, JournalTail};
use tokio_util::sync::CancellationToken;

use crate::event_filter::EventFilter;
use crate::event_page::{EventView, encode};
use crate::state::AppState;

/// Delay before a disconnected client reconnects.
const RETRY: Duration = Duration::from_secs(2);
/// Most events in memory for one client.
const BATCH_EVENTS: usize = 32;

/// The end of a session's stream.
pub(crate) enum StreamEnd {
    /// After `session.ended`.
    SessionEnded,
    /// After the first event of this turn that ends the turn or needs a person.
    TurnNeedsPerson(TurnId),
}

/// The start of a stream of the event feed.
pub(crate) enum FeedStart {
    /// After a known cursor.
    After(FeedCursor),
    /// The cursor is unknown: the stream starts with `stream.gap` and then at the beginning.
    Gap(FeedCursor),
}

/// Streams the events of one session after `offset`.
pub(crate) fn follow_session(
    state: &AppState,
    journal: Arc<dyn Journal>,
    offset: u64,
    end: StreamEnd,
    view: EventView,
) -> Response {
    let last = *journal.last().borrow();
    let gap = (offset > last && view.filter == EventFilter::All).then(|| {
        let data = json!({"offset": offset, "last": last});
        gap_frame(&last.to_string(), &data)
    });
    let tail = JournalTail::new(journal, offset.min(last));
    respond(state, gap, SessionFrames { tail, end, view, ended: false })
}

/// Streams the events of all sessions after `start`.
pub(crate) fn follow_feed(
    state: &AppState,
    feed: &Arc<GlobalFeed>,
    start: FeedStart,
    filter: FeedFilter,
    include_raw: bool,
) -> Response {
    let (cursor, gap) = match start {
        FeedStart::After(cursor) => (cursor, None),
        FeedStart::Gap(unknown) => {
            let beginning = feed.beginning();
            let data = json!({"offset": unknown.to_string(), "reason": "unknown_offset"});
            let gap = gap_frame(&beginning.to_string(), &data);
            (beginning, Some(gap))
        }
    };
    respond(state, gap, FeedFrames { follower: feed.follow(cursor, filter), include_raw })
}

/// Returns a stream that ends at once, for a session that has ended.
pub(crate) fn empty_stream(state: &AppState) -> Response {
    respond(state, None, NoFrames)
}

fn respond(state: &AppState, gap: Option<Frame>, source: impl FrameSource) -> Response {
    let pending = std::iter::once(Frame::default().retry(RETRY)).chain(gap).collect();
    let reader = FrameReader { source, pending, stopping: state.stopping.clone() };
    let keep_alive = KeepAlive::new().interval(state.config.heartbeat).text("heartbeat");
    let mut response = Sse::new(reader.frames()).keep_alive(keep_alive).into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // Buffering proxies would delay the events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A source of frames in batches.
trait FrameSource: Send + 'static {
    /// Waits for the next batch, which can be empty; returns `None` at the end of the stream.
    fn next_batch(&mut self) -> impl Future<Output = Option<Vec<Frame>>> + Send;
}

/// A source without frames.
struct NoFrames;

impl FrameSource for NoFrames {
    async fn next_batch(&mut self) -> Option<Vec<Frame>> {
        None
    }
}

/// Returns the frames of a source one by one, until the source ends or the server stops.
struct FrameReader<S> {
    source: S,
    pending: VecDeque<Frame>,
    stopping: CancellationToken,
}

impl<S: FrameSource> FrameReader<S> {
    fn frames(self) -> impl Stream<Item = Result<Frame, Infallible>> {
        stream::unfold(self, |mut reader| async move {
            let frame = reader.next().await?;
            Some((Ok(frame), reader))
        })
    }

    async fn next(&mut self) -> Option<Frame> {
        while self.pending.is_empty() {
            let batch = self.stopping.run_until_cancelled(self.source.next_batch()).await??;
            self.pending.extend(batch);
        }
        self.pending.pop_front()
    }
}

/// The frames of one session.
struct SessionFrames {
    tail: JournalTail,
    end: StreamEnd,
    view: EventView,
    ended: bool,
}

impl FrameSource for SessionFrames {
    async fn next_batch(&mut self) -> Option<Vec<Frame>> {
        if self.ended {
            return None;
        }
        match self.tail.next(BATCH_EVENTS).await {
            Ok(events) if events.is_empty() => None,
            Ok(events) => Some(events.into_iter().filter_map(|event| self.frame(event)).collect()),
            Err(error) => {
                tracing::error!(%error, "cannot read the journal for a stream; closing the stream");
                None
            }
        }
    }
}

impl SessionFrames {
    /// Returns the frame of an event that the client gets; `None` for other events and after the end.
    fn frame(&mut self, event: Event) -> Option<Frame> {
        if self.ended || !self.end.includes(&event) {
            return None;
        }
        self.ended = self.end.is_reached_by(&event);
        self.view.filter.includes(&event).then(|| {
            let cursor = event.sequence.to_string();
            event_frame(&cursor, event, self.view)
        })
    }
}

impl StreamEnd {
    fn includes(&self, event: &Event) -> bool {
        match self {
            Self::SessionEnded => true,
            Self::TurnNeedsPerson(turn) => event.draft.turn_id.as_ref() == Some(turn) || ends_session(event),
        }
    }

    fn is_reached_by(&self, event: &Event) -> bool {
        match self {
            Self::SessionEnded => ends_session(event),
            // A grant answers this request, so it needs no person.
            Self::TurnNeedsPerson(_) if is_granted(event) => false,
            Self::TurnNeedsPerson(_) => matches!(
                event.draft.body,
                EventBody::TurnEnded(_)
                    | EventBody::MessageRemoved(_)
                    | EventBody::SessionEnded(_)
                    | EventBody::Error(_)
                    | EventBody::PermissionRequested(_)
                    | EventBody::QuestionRequested(_)
            ),
        }
    }
}

fn is_granted(event: &Event) -> bool {
    match &event.draft.body {
        EventBody::PermissionRequested(request) => {
            RequestMetadata::read(request.metadata.as_ref()).granted_by.is_some()
        }
        _ => false,
    }
}

fn ends_session(event: &Event) -> bool {
    matches!(event.draft.body, EventBody::SessionEnded(_))
}

/// The frames of the event feed.
struct FeedFrames {
    follower: FeedFollower,
    include_raw: bool,
}

impl FrameSource for FeedFrames {
    async fn next_batch(&mut self) -> Option<Vec<Frame>> {
        match self.follower.next(BATCH_EVENTS).await {
            Ok(entries) if entries.is_empty() => None,
            Ok(entries) => Some(entries.into_iter().map(|entry| feed_frame(entry, self.include_raw)).collect()),
            Err(error) => {
                tracing::error!(%error, "cannot read the event feed for a stream; closing the stream");
                None
            }
        }
    }
}

fn feed_frame(entry: FeedEntry, include_raw: bool) -> Frame {
    match entry {
        FeedEntry::Event(cursor, event) => {
            event_frame(&cursor.to_string(), *event, EventView { filter: EventFilter::All, include_raw })
        }
        FeedEntry::Lost { cursor: spot, session_id, first, last } => {
            let data = json!({"session_id": session_id, "first": first, "last": last, "reason": "unreadable"});
            gap_frame(&spot.to_string(), &data)
        }
    }
}

/// Returns the frame of an event. Frames of the contract have no `event:` field: a browser passes only those to
/// `EventSource.onmessage`.
fn event_frame(cursor: &str, event: Event, view: EventView) -> Frame {
    let frame = Frame::default().id(cursor);
    let frame = match view.filter {
        EventFilter::All => frame.event(event.draft.body.kind()),
        EventFilter::Contract => frame,
    };
    frame.data(encode(event, view.include_raw))
}

/// Returns the `stream.gap` frame, which tells the client that events are missing.
fn gap_frame(cursor: &str, data: &serde_json::Value) -> Frame {
    Frame::default().id(cursor).event("stream.gap").data(data.to_string())
}
