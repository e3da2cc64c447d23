//! The journal as a port.

use protocol::{Event, EventDraft, SessionId};
use tokio::sync::watch;

use super::JournalError;
use super::stamp::event_id;

/// Where one session's records live.
///
/// A record is stored before its number is returned: a subscriber may ask for it at once. Numbers are
/// contiguous from 1 and times never go back, whatever the clock does. Nothing is stored after
/// `session.ended`. A refused record leaves no trace, and the next one is taken as if nothing had been.
pub trait Journal: Send + Sync {
    /// Stores `drafts`, all or none, in this order and with nothing between them.
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError>;
    /// The same, and returns their events, with number and time.
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
    /// At most `limit` events numbered above `sequence`, in order.
    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError>;
    /// Number of the last event, now and as it grows.
    fn last(&self) -> watch::Receiver<u64>;
    /// Returns when everything appended so far is on disk.
    fn sync(&self) -> Result<(), JournalError>;
}

/// Where records stand that were stored together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRange {
    /// In the journal of this session.
    pub session: SessionId,
    /// Number of the first of them; the others follow.
    pub first: u64,
    /// When, as it is written.
    pub time: String,
}
