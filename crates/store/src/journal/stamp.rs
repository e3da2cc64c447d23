//! The next number and the next time of a journal.

use jiff::Timestamp;
use protocol::{Draft, Event, EventBody, SessionId};

use super::JournalError;

/// Where a journal stands: what its last record was numbered, when it was made, whether it was the end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stamp {
    pub(super) sequence: u64,
    pub(super) time: Timestamp,
    pub(super) ended: bool,
}

impl Stamp {
    /// Makes `draft` the event that comes next. The stamp itself moves only by [`Stamp::advance`], once
    /// the event is stored.
    pub(super) fn next(&self, session: &SessionId, now: Timestamp, draft: Draft) -> Result<Event, JournalError> {
        if self.ended {
            return Err(JournalError::Ended);
        }
        let sequence = self.sequence + 1;
        // A clock that was set back must not make the record look reordered.
        let time = now.max(self.time);
        Ok(Event {
            event_id: event_id(sequence),
            sequence,
            time: format!("{time:.6}"),
            session_id: session.clone(),
            draft,
        })
    }

    /// Moves on to `event`, which has been stored.
    pub(super) fn advance(&mut self, event: &Event) {
        self.sequence = event.sequence;
        // A time we cannot read sorts before every other: the clock alone decides then.
        self.time = event.time.parse().unwrap_or_default();
        self.ended = matches!(event.draft.body, EventBody::SessionEnded(_));
    }
}

/// `evt_<sequence>`.
pub(super) fn event_id(sequence: u64) -> String {
    format!("evt_{sequence}")
}
