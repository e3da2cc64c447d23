//! Reads on among the events of all sessions, and waits for more.

use std::sync::Arc;

use protocol::{Event, SessionId};
use store::{EventRange, FeedCursor};
use tokio::sync::watch;

use super::GlobalFeed;
use crate::SessionError;
use crate::shelf::blocking;

/// So many runs, and events of them, are looked at at most before a reader may do something else.
const RUNS: usize = 64;
const LOOKED_AT: usize = 1024;

/// Which events somebody wants; what is empty means all.
#[derive(Debug, Clone, Default)]
pub struct FeedFilter {
    /// Of these sessions.
    pub sessions: Vec<SessionId>,
    /// Of these kinds (`turn.ended`) or families (`turn`).
    pub kinds: Vec<String>,
}

/// Something to be told, and where it is.
#[derive(Debug, Clone)]
pub enum FeedEntry {
    /// An event.
    Event(FeedCursor, Box<Event>),
    /// Events that were there and cannot be read any more.
    Lost {
        /// Behind them.
        cursor: FeedCursor,
        /// Whose they were.
        session_id: SessionId,
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
}

/// A part of the events, and where the next part begins.
#[derive(Debug)]
pub struct FeedBatch {
    /// In their order.
    pub entries: Vec<FeedEntry>,
    /// Behind the last event that was looked at, wanted or not.
    pub cursor: FeedCursor,
    /// Whether there is more behind it.
    pub more: bool,
}

impl FeedFilter {
    fn has(&self, session: &SessionId) -> bool {
        self.sessions.is_empty() || self.sessions.contains(session)
    }

    fn is(&self, event: &Event) -> bool {
        let kind = event.draft.body.kind();
        let family = kind.split_once('.').map(|(family, _)| family);
        self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind || Some(wanted.as_str()) == family)
    }
}

impl GlobalFeed {
    /// What comes behind `at`: at most `limit` of what is `wanted`. There may be none in a batch that is not the last.
    pub fn read(&self, at: FeedCursor, limit: usize, wanted: &FeedFilter) -> Result<FeedBatch, SessionError> {
        let mut batch = FeedBatch { entries: Vec::new(), cursor: at, more: false };
        let mut looked_at = 0;
        for run in self.feed.after(at.number, RUNS)? {
            let session = self.shelf.index.at_place(run.place)?;
            let Some(session) = session.filter(|session| wanted.has(session)) else {
                batch.cursor = self.feed.spot(run.number, run.place, run.last);
                continue;
            };
            let room = (limit - batch.entries.len()).min(LOOKED_AT - looked_at);
            if room == 0 {
                break;
            }
            looked_at += self.read_run(&mut batch, run, session, room, wanted);
            if batch.cursor.number < run.number {
                break;
            }
        }
        batch.more = batch.cursor.number < *self.total.borrow();
        Ok(batch)
    }

    /// Reads at most `room` events of a run; how many were looked at.
    fn read_run(
        &self,
        batch: &mut FeedBatch,
        run: EventRange,
        session: SessionId,
        room: usize,
        wanted: &FeedFilter,
    ) -> usize {
        let count = usize::try_from(run.last - run.first + 1).unwrap_or(usize::MAX).min(room);
        let spot = |sequence: u64| self.feed.spot(run.number - (run.last - sequence), run.place, sequence);
        let events = self.shelf.events(&session, run.first - 1, count).unwrap_or_else(|error| {
            tracing::error!(session = %session, %error, "cannot read a journal");
            Vec::new()
        });
        let found = events.len();
        for event in events {
            batch.cursor = spot(event.sequence);
            if wanted.is(&event) {
                batch.entries.push(FeedEntry::Event(batch.cursor, Box::new(event)));
            }
        }
        if found < count {
            batch.cursor = spot(run.last);
            let (first, last) = (run.first + found as u64, run.last);
            batch.entries.push(FeedEntry::Lost { cursor: batch.cursor, session_id: session, first, last });
        }
        count
    }

    /// Reads on from `at`, and waits for what is not there yet.
    pub fn follow(self: &Arc<Self>, at: FeedCursor, wanted: FeedFilter) -> FeedFollower {
        FeedFollower { everything: self.clone(), total: self.total.subscribe(), at, wanted: Arc::new(wanted) }
    }
}

/// A reader that waits for what is not there yet. It holds nothing but its place.
pub struct FeedFollower {
    everything: Arc<GlobalFeed>,
    total: watch::Receiver<u64>,
    at: FeedCursor,
    wanted: Arc<FeedFilter>,
}

impl FeedFollower {
    /// The next events that are wanted, at least one and at most `limit`.
    ///
    /// Can be dropped at any await and called again: nothing is skipped.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<FeedEntry>, SessionError> {
        loop {
            // Marked as seen before reading, so that what comes in between wakes us again.
            let total = *self.total.borrow_and_update();
            if self.at.number >= total {
                self.total.changed().await.map_err(|_| SessionError::ShuttingDown)?;
                continue;
            }
            let (everything, at, wanted) = (self.everything.clone(), self.at, self.wanted.clone());
            let batch = blocking(move || everything.read(at, limit.max(1), &wanted)).await?;
            self.at = batch.cursor;
            if !batch.entries.is_empty() {
                return Ok(batch.entries);
            }
        }
    }
}
