//! Events as they happen, as server-sent events.
//!
//! A stream reads the journal and waits for it to grow: it holds one small page, and a reader that is slow
//! slows nobody but itself. The id of an event is its sequence number, so a client that comes back with
//! `Last-Event-ID` sees exactly what it missed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use http::HeaderValue;
use http::header::CACHE_CONTROL;
use protocol::{Event, EventBody, TurnId};
use store::{Journal, JournalTail};
use tokio_util::sync::CancellationToken;

use crate::event_page::{Show, encode};
use crate::state::AppState;
use crate::event_filter::EventFilter;

/// How long a client waits before it connects again.
pub(crate) const RETRY: Duration = Duration::from_secs(2);
/// So many events are held for one reader.
pub(crate) const HELD: usize = 32;

/// Where a stream ends.
pub(crate) enum Until {
    /// After `session.ended`.
    SessionEnds,
    /// With the first event of this turn that ends it or that a person must look at.
    TurnNeedsSomebody(TurnId),
}

/// The events after `offset`, as they happen.
pub(crate) fn follow(state: &AppState, journal: Arc<dyn Journal>, offset: u64, until: Until, show: Show) -> Response {
    let last = *journal.last().borrow();
    let mut held = VecDeque::from([Frame::default().retry(RETRY)]);
    if offset > last && show.events == EventFilter::All {
        held.push_back(gap(offset, last));
    }
    let tail = JournalTail::new(journal, offset.min(last));
    let reader = Reader { tail, held, until, show, over: false, stopping: state.stopping.clone() };
    respond(state, reader.frames())
}

/// Answers with `frames`, and with signs of life where there are none.
pub(crate) fn respond(
    state: &AppState,
    frames: impl Stream<Item = Result<Frame, Infallible>> + Send + 'static,
) -> Response {
    let keep_alive = KeepAlive::new().interval(state.config.heartbeat).text("heartbeat");
    let mut response = Sse::new(frames).keep_alive(keep_alive).into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // Proxies that buffer would make a live stream a late one.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct Reader {
    tail: JournalTail,
    held: VecDeque<Frame>,
    until: Until,
    show: Show,
    over: bool,
    stopping: CancellationToken,
}

impl Reader {
    fn frames(self) -> impl Stream<Item = Result<Frame, Infallible>> {
        stream::unfold(self, |mut reader| async move {
            let frame = reader.next().await?;
            Some((Ok(frame), reader))
        })
    }

    async fn next(&mut self) -> Option<Frame> {
        while self.held.is_empty() && !self.over {
            let stopping = self.stopping.clone();
            match stopping.run_until_cancelled(self.tail.next(HELD)).await? {
                Ok(events) if events.is_empty() => self.over = true,
                Ok(events) => events.into_iter().for_each(|event| self.take(event)),
                Err(error) => {
                    tracing::error!(%error, "cannot read the journal for a stream");
                    self.over = true;
                }
            }
        }
        self.held.pop_front()
    }

    fn take(&mut self, event: Event) {
        if self.over || !self.until.wants(&event) {
            return;
        }
        self.over = self.until.ends_with(&event);
        if self.show.events.has(&event) {
            self.held.push_back(frame(event, self.show.raw));
        }
    }
}

impl Until {
    fn wants(&self, event: &Event) -> bool {
        match self {
            Self::SessionEnds => true,
            Self::TurnNeedsSomebody(turn) => event.draft.turn_id.as_ref() == Some(turn) || ends_session(event),
        }
    }

    fn ends_with(&self, event: &Event) -> bool {
        match self {
            Self::SessionEnds => ends_session(event),
            // What was granted before waits for nobody.
            Self::TurnNeedsSomebody(_) if is_granted(event) => false,
            Self::TurnNeedsSomebody(_) => matches!(
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
        EventBody::PermissionRequested(asked) => {
            asked.metadata.as_ref().is_some_and(|data| data["granted_by"].is_string())
        }
        _ => false,
    }
}

fn ends_session(event: &Event) -> bool {
    matches!(event.draft.body, EventBody::SessionEnded(_))
}

fn frame(event: Event, include_raw: bool) -> Frame {
    let (id, kind) = (event.sequence.to_string(), event.draft.body.kind().to_owned());
    Frame::default().id(id).event(kind).data(encode(event, include_raw))
}

/// The client has seen more than there is: it is told, and goes on from what there is.
fn gap(offset: u64, last: u64) -> Frame {
    let data = serde_json::json!({"offset": offset, "last": last});
    Frame::default().event("stream.gap").id(last.to_string()).data(data.to_string())
}
