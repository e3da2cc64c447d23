//! The record of one session, as a port.

use protocol::{Draft, Event};
use tokio::sync::watch;

/// Why a record could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk said no.
    #[error("cannot {doing} the journal")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// `session.ended` is the last record of a session.
    #[error("the session has ended; nothing is recorded after its end")]
    Ended,
}

/// Where one session's records live.
///
/// A record is stored before its number is returned: a subscriber may ask for it at once. Numbers are
/// contiguous from 1. Nothing is stored after `session.ended`.
pub trait Journal: Send + Sync {
    /// Stores `draft` and returns its event, with number and time.
    fn append(&self, draft: Draft) -> Result<Event, JournalError>;
    /// At most `limit` events numbered above `sequence`, in order.
    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError>;
    /// Number of the last event, now and as it grows.
    fn last(&self) -> watch::Receiver<u64>;
    /// Returns when everything appended so far is on disk.
    fn sync(&self) -> Result<(), JournalError>;
}
