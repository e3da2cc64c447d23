//! The events of all sessions as they happen, as server-sent events.
//!
//! The id of a frame is a place among all events: a client that comes back with it, to this server or to the next one on
//! the same data directory, sees what it missed and nothing twice.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::Response;
use axum::response::sse::Event as Frame;
use futures_util::stream::{self, Stream};
use serde_json::json;
use session::{FeedEntry, FeedFilter, FeedFollower, GlobalFeed};
use store::FeedCursor;
use tokio_util::sync::CancellationToken;

use crate::event_page::encode;
use crate::state::AppState;
use crate::event_stream::{HELD, RETRY, respond};

/// Where a reader begins.
pub(crate) enum Start {
    /// Behind a place it has been at.
    At(FeedCursor),
    /// The place it names is not there: it is told, and begins at the beginning.
    Gap(FeedCursor),
}

/// The events behind `start`, as they happen.
pub(crate) fn follow(
    state: &AppState,
    everything: &Arc<GlobalFeed>,
    start: Start,
    wanted: FeedFilter,
    include_raw: bool,
) -> Response {
    let mut held = VecDeque::from([Frame::default().retry(RETRY)]);
    let at = match start {
        Start::At(spot) => spot,
        Start::Gap(spot) => {
            let beginning = everything.beginning();
            let told = json!({"offset": spot.to_string(), "reason": "unknown_offset"});
            held.push_back(Frame::default().event("stream.gap").id(beginning.to_string()).data(told.to_string()));
            beginning
        }
    };
    let follower = everything.follow(at, wanted);
    let reader = Reader { follower, held, include_raw, stopping: state.stopping.clone() };
    respond(state, reader.frames())
}

struct Reader {
    follower: FeedFollower,
    held: VecDeque<Frame>,
    include_raw: bool,
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
        if self.held.is_empty() {
            let stopping = self.stopping.clone();
            match stopping.run_until_cancelled(self.follower.next(HELD)).await? {
                Ok(entries) => self.held.extend(entries.into_iter().map(|entry| frame(entry, self.include_raw))),
                Err(error) => tracing::error!(%error, "cannot read on for a stream"),
            }
        }
        self.held.pop_front()
    }
}

fn frame(entry: FeedEntry, include_raw: bool) -> Frame {
    match entry {
        FeedEntry::Event(spot, event) => {
            let kind = event.draft.body.kind().to_owned();
            Frame::default().id(spot.to_string()).event(kind).data(encode(*event, include_raw))
        }
        FeedEntry::Lost { spot, session_id, first, last } => {
            let told = json!({"session_id": session_id, "first": first, "last": last, "reason": "unreadable"});
            Frame::default().id(spot.to_string()).event("stream.gap").data(told.to_string())
        }
    }
}
