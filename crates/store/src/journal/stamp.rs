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
    /// Makes `draft` the event that comes next, and says where the journal stands once that is stored.
    pub(super) fn next(
        &self,
        session: &SessionId,
        now: Timestamp,
        draft: Draft,
    ) -> Result<(Event, Self), JournalError> {
        if self.ended {
            return Err(JournalError::Ended);
        }
        let sequence = self.sequence + 1;
        // A clock that was set back must not make the record look reordered.
        let time = now.max(self.time);
        let after = Self { sequence, time, ended: is_end(&draft.body) };
        let (event_id, session_id) = (event_id(sequence), session.clone());
        Ok((Event { event_id, sequence, time: format!("{time:.6}"), session_id, draft }, after))
    }

    /// Where a journal stands whose last event is `event`.
    pub(super) fn after(event: &Event) -> Self {
        // A time we cannot read sorts before every other: the clock alone decides then.
        let time = event.time.parse().unwrap_or_default();
        Self { sequence: event.sequence, time, ended: is_end(&event.draft.body) }
    }
}

fn is_end(body: &EventBody) -> bool {
    matches!(body, EventBody::SessionEnded(_))
}

/// `evt_<sequence>`.
pub(super) fn event_id(sequence: u64) -> String {
    format!("evt_{sequence}")
}
