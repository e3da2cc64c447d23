//! A copy of a journal under another session id.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use base::Digest;
use protocol::SessionId;

use super::JournalError;
use super::encoded_drafts::EncodedDrafts;
use super::line::{self, LineHeader};
use super::line_reader::{FileRegion, LineReader, RecordOffset};

/// Copies the journal at `from` to `to` as the journal of `session`.
///
/// Numbers, times and contents stay the same; the hash chain is computed again.
pub fn copy_journal(from: &Path, to: &Path, session: &SessionId) -> Result<(), JournalError> {
    let file = File::open(from).map_err(JournalError::io("open", from))?;
    let end = file.metadata().map_err(JournalError::io("read", from))?.len();
    let mut lines = LineReader::new(FileRegion { file: &file, path: from, session: None, end }, RecordOffset::FIRST);
    let mut copy = BufWriter::new(File::create(to).map_err(JournalError::io("write", to))?);
    let (mut prev, mut text) = (Digest::ZERO, Vec::new());
    while let Some(event) = lines.next()? {
        text.clear();
        let header = LineHeader { sequence: event.sequence, time: &event.time, session, prev };
        for draft in EncodedDrafts::new(&[event.draft])?.iter() {
            line::encode(header, draft, &mut text)?;
        }
        prev = line::digest(&text);
        copy.write_all(&text).map_err(JournalError::io("write", to))?;
    }
    copy.flush().map_err(JournalError::io("write", to))
}
