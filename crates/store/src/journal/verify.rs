//! Reads a whole journal and says whether it is what we wrote.

use std::fs::File;
use std::path::Path;

use protocol::{EventBody, SessionId};

use super::JournalError;
use super::walk::{Region, Start, Walk};

/// What a whole and unbroken journal holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedJournal {
    /// Whose records they are; none in an empty journal.
    pub session: Option<SessionId>,
    /// How many records.
    pub records: u64,
    /// Whether the last one is `session.ended`.
    pub ended: bool,
    /// Bytes of a half-written last record: a crash, or a writer at work.
    pub torn_bytes: u64,
}

/// Checks every line of the journal at `path`: numbers, session, hash chain. Changes nothing.
pub fn verify_journal(path: &Path) -> Result<VerifiedJournal, JournalError> {
    let file = File::open(path).map_err(JournalError::io("open", path))?;
    let end = file.metadata().map_err(JournalError::io("read", path))?.len();
    let mut walk = Walk::new(Region { file: &file, path, session: None, end }, Start::FIRST);
    let mut verified = VerifiedJournal { session: None, records: 0, ended: false, torn_bytes: 0 };
    while let Some(event) = walk.next()? {
        verified.records = event.sequence;
        verified.ended = matches!(event.draft.body, EventBody::SessionEnded(_));
        verified.session.get_or_insert(event.session_id);
    }
    walk.check_torn()?;
    verified.torn_bytes = walk.torn().len() as u64;
    Ok(verified)
}
