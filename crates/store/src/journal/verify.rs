//! Verification of a whole journal.

use std::fs::File;
use std::path::Path;

use protocol::{EventBody, SessionId};

use super::JournalError;
use super::line_reader::{FileRegion, LineReader, RecordOffset};

/// The summary of a journal without defects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedJournal {
    /// The session of the records; `None` in an empty journal.
    pub session: Option<SessionId>,
    /// Number of records.
    pub records: u64,
    /// Whether the last record is `session.ended`.
    pub ended: bool,
    /// Bytes of an incomplete last record, left by a crash or by a writer at work.
    pub torn_bytes: u64,
}

/// Checks number, session and hash of every line of the journal at `path`, and changes nothing.
///
/// Fails with the first defect.
pub fn verify_journal(path: &Path) -> Result<VerifiedJournal, JournalError> {
    let file = File::open(path).map_err(JournalError::io("open", path))?;
    let end = file.metadata().map_err(JournalError::io("read", path))?.len();
    let mut lines = LineReader::new(FileRegion { file: &file, path, session: None, end }, RecordOffset::FIRST);
    let mut verified = VerifiedJournal { session: None, records: 0, ended: false, torn_bytes: 0 };
    while let Some(event) = lines.next()? {
        verified.records = event.sequence;
        verified.ended = matches!(event.draft.body, EventBody::SessionEnded(_));
        verified.session.get_or_insert(event.session_id);
    }
    lines.check_torn()?;
    verified.torn_bytes = lines.torn().len() as u64;
    Ok(verified)
}
