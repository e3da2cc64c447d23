//! The journal as a port.

use protocol::{Event, EventDraft, SessionId};
use tokio::sync::watch;

use super::JournalError;
use super::position::event_id;

/// The records of one session.
///
/// - A record is stored before its number is returned, so a subscriber can read it at once.
/// - Numbers are contiguous from 1. Times never decrease, also when the clock is set back.
/// - Nothing is stored after `session.ended`.
/// - A rejected record leaves no trace; the next record gets the number that the rejected one would have had.
pub trait Journal: Send + Sync {
    /// Stores all of `drafts` or none, in this order, with no other record between them.
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError>;
    /// Stores all of `drafts` or none, and returns their events with number and time.
    fn append_all(&self, drafts: Vec<EventDraft>) -> Result<Vec<Event>, JournalError> {
        let StoredRange { session, first, time } = self.store(&drafts)?;
        let event = |(sequence, draft)| Event {
            event_id: event_id(sequence),
            sequence,
            time: time.clone(),
            session_id: session.clone(),
            draft,
        };
        Ok((first..).zip(drafts).map(event).collect())
    }
    /// Stores `draft` and returns its event.
    fn append(&self, draft: EventDraft) -> Result<Event, JournalError> {
        self.append_all(vec![draft])?.pop().ok_or(JournalError::Ended)
    }
    /// Returns at most `limit` events numbered above `sequence`, in order; empty at the end.
    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError>;
    /// Returns a receiver of the last event's number, which changes with every append.
    fn last(&self) -> watch::Receiver<u64>;
    /// Returns when everything appended so far is on disk.
    fn sync(&self) -> Result<(), JournalError>;
}

/// The numbers and the time of records that were stored together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRange {
    /// The session of the journal.
    pub session: SessionId,
    /// Number of the first record; the others follow without gaps.
    pub first: u64,
    /// The time of all records, as it is written in the journal.
    pub time: String,
}
