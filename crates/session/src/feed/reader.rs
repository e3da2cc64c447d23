//! Readers of the global feed: one batch at a time, or following new events.

use std::sync::Arc;

use protocol::{Event, SessionId};
use store::{EventRange, FeedCursor};
use tokio::sync::watch;

use super::GlobalFeed;
use crate::SessionError;
use crate::storage::run_blocking;

/// Ranges and events that one call reads at most.
const MAX_RANGES: usize = 64;
const MAX_EVENTS: usize = 1024;

/// A filter of events. An empty list matches all.
#[derive(Debug, Clone, Default)]
pub struct FeedFilter {
    /// Sessions to include.
    pub sessions: Vec<SessionId>,
    /// Event types (`turn.ended`) or families (`turn`) to include.
    pub kinds: Vec<String>,
}

/// One entry of the feed, with its cursor.
#[derive(Debug, Clone)]
pub enum FeedEntry {
    /// An event.
    Event(FeedCursor, Box<Event>),
    /// Events that can no longer be read.
    Lost {
        /// The cursor after the lost events.
        cursor: FeedCursor,
        /// The session of the lost events.
        session_id: SessionId,
        /// Sequence number of the first lost event.
        first: u64,
        /// Sequence number of the last lost event.
        last: u64,
    },
}

/// A batch of entries, and the cursor of the next batch.
#[derive(Debug)]
pub struct FeedBatch {
    /// The entries in order.
    pub entries: Vec<FeedEntry>,
    /// The cursor after the last event that was read, whether it matched the filter or not.
    pub cursor: FeedCursor,
    /// Whether more events follow.
    pub more: bool,
}

impl FeedFilter {
    fn includes_session(&self, session: &SessionId) -> bool {
        self.sessions.is_empty() || self.sessions.contains(session)
    }

    fn includes(&self, event: &Event) -> bool {
        let kind = event.draft.body.kind();
        let family = kind.split_once('.').map(|(family, _)| family);
        self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind || Some(wanted.as_str()) == family)
    }
}

impl GlobalFeed {
    /// Returns at most `limit` events after `at` that match `filter`. A batch can be empty although more events follow.
    pub fn read(&self, at: FeedCursor, limit: usize, filter: &FeedFilter) -> Result<FeedBatch, SessionError> {
        let mut batch = FeedBatch { entries: Vec::new(), cursor: at, more: false };
        let mut read_count = 0;
        for range in self.feed.after(at.number, MAX_RANGES)? {
            let session = self.store.index.session_at(range.place)?;
            let Some(session) = session.filter(|session| filter.includes_session(session)) else {
                batch.cursor = self.feed.cursor(range.number, range.place, range.last);
                continue;
            };
            let room = (limit - batch.entries.len()).min(MAX_EVENTS - read_count);
            if room == 0 {
                break;
            }
            read_count += self.read_range(&mut batch, range, session, room, filter);
            if batch.cursor.number < range.number {
                break;
            }
        }
        batch.more = batch.cursor.number < *self.total.borrow();
        Ok(batch)
    }

    /// Reads at most `room` events of a range into `batch`. Returns how many were read.
    fn read_range(
        &self,
        batch: &mut FeedBatch,
        range: EventRange,
        session: SessionId,
        room: usize,
        filter: &FeedFilter,
    ) -> usize {
        let count = usize::try_from(range.last - range.first + 1).unwrap_or(usize::MAX).min(room);
        let cursor_at = |sequence: u64| self.feed.cursor(range.number - (range.last - sequence), range.place, sequence);
        let events = self.store.events(&session, range.first - 1, count).unwrap_or_else(|error| {
            tracing::error!(session = %session, %error, "cannot read a journal");
            Vec::new()
        });
        let found = events.len();
        for event in events {
            batch.cursor = cursor_at(event.sequence);
            if filter.includes(&event) {
                batch.entries.push(FeedEntry::Event(batch.cursor, Box::new(event)));
            }
        }
        if found < count {
            batch.cursor = cursor_at(range.last);
            let (first, last) = (range.first + found as u64, range.last);
            batch.entries.push(FeedEntry::Lost { cursor: batch.cursor, session_id: session, first, last });
        }
        count
    }

    /// Returns a follower that reads from `at` and waits for new events.
    pub fn follow(self: &Arc<Self>, at: FeedCursor, filter: FeedFilter) -> FeedFollower {
        FeedFollower { feed: self.clone(), total: self.total.subscribe(), at, filter: Arc::new(filter) }
    }
}

/// A reader that waits for new events. It holds only its cursor.
pub struct FeedFollower {
    feed: Arc<GlobalFeed>,
    total: watch::Receiver<u64>,
    at: FeedCursor,
    filter: Arc<FeedFilter>,
}

impl FeedFollower {
    /// Waits for the next matching entries, at least one and at most `limit`. Cancel-safe.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<FeedEntry>, SessionError> {
        loop {
            // Marked as seen before reading, so that events that arrive meanwhile wake us again.
            let total = *self.total.borrow_and_update();
            if self.at.number >= total {
                self.total.changed().await.map_err(|_| SessionError::ShuttingDown)?;
                continue;
            }
            let (feed, at, filter) = (self.feed.clone(), self.at, self.filter.clone());
            let batch = run_blocking(move || feed.read(at, limit.max(1), &filter)).await?;
            self.at = batch.cursor;
            if !batch.entries.is_empty() {
                return Ok(batch.entries);
            }
        }
    }
}
