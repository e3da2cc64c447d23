//! The next number and the next time of a journal.

use jiff::Timestamp;
use protocol::{Event, EventBody};

use super::JournalError;

/// Where a journal stands: what its last record was numbered, when it was made, whether it was the end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stamp {
    pub(super) sequence: u64,
    pub(super) time: Timestamp,
    pub(super) ended: bool,
}

impl Stamp {
    /// Sets the time of what comes next, and says how it is written. A clock that was set back must not make the record
    /// look reordered.
    pub(super) fn advance(&mut self, now: Timestamp) -> String {
        self.time = now.max(self.time);
        format!("{:.6}", self.time)
    }

    /// Where the journal stands once a record comes next, which may end the session.
    pub(super) fn next(&self, ended: bool) -> Result<Self, JournalError> {
        if self.ended {
            return Err(JournalError::Ended);
        }
        Ok(Self { sequence: self.sequence + 1, time: self.time, ended })
    }

    /// Where a journal stands whose last event is `event`.
    pub(super) fn after(event: &Event) -> Self {
        // A time we cannot read sorts before every other: the clock alone decides then.
        let time = event.time.parse().unwrap_or_default();
        Self { sequence: event.sequence, time, ended: matches!(event.draft.body, EventBody::SessionEnded(_)) }
    }
}

/// `evt_<sequence>`.
pub(super) fn event_id(sequence: u64) -> String {
    format!("evt_{sequence}")
}
