//! Following a journal as it grows.
//!
//! Every client follows a session through this type: a new client starts at 0, a client that reconnects starts at the
//! last number it saw, and both get the same events.

use std::sync::Arc;

use protocol::{Event, EventBody};
use tokio::sync::watch;

use super::{Journal, JournalError};

/// A reader that waits for new events at the end of a journal.
pub struct JournalTail {
    journal: Arc<dyn Journal>,
    last: watch::Receiver<u64>,
    seen: u64,
    /// Whether an event was returned. From then on, the reader sees `session.ended` itself.
    has_returned_events: bool,
    ended: bool,
}

impl JournalTail {
    /// Follows `journal` from the event after `sequence`.
    pub fn new(journal: Arc<dyn Journal>, sequence: u64) -> Self {
        let last = journal.last();
        Self { journal, last, seen: sequence, has_returned_events: false, ended: false }
    }

    /// Waits for the next event and returns at most `limit` events; empty when the session has ended and every event
    /// was returned.
    ///
    /// Cancel-safe: a call that is dropped at an await skips nothing. The read itself blocks for as long as the page
    /// cache takes, which is less than the cost of moving it to another thread.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<Event>, JournalError> {
        while !self.ended {
            // The value is marked as seen before reading, so an append in between wakes this reader again.
            let last = *self.last.borrow_and_update();
            if self.seen < last {
                let events = self.journal.after(self.seen, limit.max(1))?;
                self.advance(&events);
                return Ok(events);
            }
            self.ended = self.starts_after_end()? || self.last.changed().await.is_err();
        }
        Ok(Vec::new())
    }

    fn advance(&mut self, events: &[Event]) {
        if let Some(event) = events.last() {
            self.seen = event.sequence;
            self.has_returned_events = true;
            self.ended = matches!(event.draft.body, EventBody::SessionEnded(_));
        }
    }

    /// Returns whether this reader was started at or after `session.ended`, so that no event will follow.
    fn starts_after_end(&self) -> Result<bool, JournalError> {
        if self.has_returned_events {
            return Ok(false);
        }
        let last = *self.last.borrow();
        let Some(before) = last.checked_sub(1) else { return Ok(false) };
        let event = self.journal.after(before, 1)?.pop();
        Ok(event.is_some_and(|event| matches!(event.draft.body, EventBody::SessionEnded(_))))
    }
}
