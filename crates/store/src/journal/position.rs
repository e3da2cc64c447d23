//! The last number and time of a journal, from which the next ones follow.

use jiff::Timestamp;
use protocol::{Event, EventBody};

use super::JournalError;

/// Number and time of the last record of a journal, and whether that record ended the session.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JournalPosition {
    pub(super) sequence: u64,
    pub(super) time: Timestamp,
    pub(super) ended: bool,
}

impl JournalPosition {
    /// Sets the time of the next records and returns it as text.
    ///
    /// Times never decrease, so a clock that is set back does not make records look reordered.
    pub(super) fn set_time(&mut self, now: Timestamp) -> String {
        self.time = now.max(self.time);
        format!("{:.6}", self.time)
    }

    /// Returns the position after one more record. Fails when the session has ended.
    pub(super) fn next(&self, ended: bool) -> Result<Self, JournalError> {
        if self.ended {
            return Err(JournalError::Ended);
        }
        Ok(Self { sequence: self.sequence + 1, time: self.time, ended })
    }

    /// Returns the position of a journal whose last event is `event`.
    pub(super) fn after(event: &Event) -> Self {
        // An unreadable time counts as the earliest time, so the next time comes from the clock alone.
        let time = event.time.parse().unwrap_or_default();
        Self { sequence: event.sequence, time, ended: matches!(event.draft.body, EventBody::SessionEnded(_)) }
    }
}

/// Returns `evt_<sequence>`.
pub(super) fn event_id(sequence: u64) -> String {
    format!("evt_{sequence}")
}
