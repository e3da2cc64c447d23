//! Reads a journal as it grows.
//!
//! The one way to follow a session: a live client begins at 0, one that reconnects at the number it saw
//! last, and both see the same events.

use std::sync::Arc;

use protocol::{Event, EventBody};
use tokio::sync::watch;

use super::{Journal, JournalError};

/// A reader that waits for what is not there yet.
pub struct JournalTail {
    journal: Arc<dyn Journal>,
    last: watch::Receiver<u64>,
    seen: u64,
    /// Whether an event was given: from then on the end shows itself.
    given: bool,
    ended: bool,
}

impl JournalTail {
    /// Follows `journal` from the event after `sequence`.
    pub fn new(journal: Arc<dyn Journal>, sequence: u64) -> Self {
        let last = journal.last();
        Self { journal, last, seen: sequence, given: false, ended: false }
    }

    /// The next events, at least one and at most `limit`; waits for the first. None means that the
    /// session has ended and everything was given.
    ///
    /// Can be dropped at any await and called again: nothing is skipped. The read itself blocks for as long as
    /// the page cache takes, which costs less than handing it to another thread.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<Event>, JournalError> {
        while !self.ended {
            // Marked as seen before reading, so that an append in between wakes us again.
            let last = *self.last.borrow_and_update();
            if self.seen < last {
                let events = self.journal.after(self.seen, limit.max(1))?;
                self.pass(&events);
                return Ok(events);
            }
            self.ended = self.is_past_the_end()? || self.last.changed().await.is_err();
        }
        Ok(Vec::new())
    }

    fn pass(&mut self, events: &[Event]) {
        if let Some(event) = events.last() {
            self.seen = event.sequence;
            self.given = true;
            self.ended = matches!(event.draft.body, EventBody::SessionEnded(_));
        }
    }

    /// A reader may come back with the number of `session.ended`: nothing will ever follow.
    fn is_past_the_end(&self) -> Result<bool, JournalError> {
        if self.given {
            return Ok(false);
        }
        let last = *self.last.borrow();
        let Some(before) = last.checked_sub(1) else { return Ok(false) };
        let event = self.journal.after(before, 1)?.pop();
        Ok(event.is_some_and(|event| matches!(event.draft.body, EventBody::SessionEnded(_))))
    }
}
