//! A journal, written again as another session's.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use base::Digest;
use protocol::SessionId;

use super::JournalError;
use super::line::{self, Place};
use super::script::Script;
use super::walk::{Region, Start, Walk};

/// Writes the journal at `from` to `to` as the one of `session`: the same records with the same numbers and times, in a
/// chain of their own.
pub fn copy_journal(from: &Path, to: &Path, session: &SessionId) -> Result<(), JournalError> {
    let file = File::open(from).map_err(JournalError::io("open", from))?;
    let end = file.metadata().map_err(JournalError::io("read", from))?.len();
    let mut walk = Walk::new(Region { file: &file, path: from, session: None, end }, Start::FIRST);
    let mut copy = BufWriter::new(File::create(to).map_err(JournalError::io("write", to))?);
    let (mut prev, mut text) = (Digest::ZERO, Vec::new());
    while let Some(event) = walk.next()? {
        text.clear();
        let place = Place { sequence: event.sequence, time: &event.time, session, prev };
        for said in Script::of(&[event.draft])?.said() {
            line::put(place, said, &mut text)?;
        }
        prev = line::digest(&text);
        copy.write_all(&text).map_err(JournalError::io("write", to))?;
    }
    copy.flush().map_err(JournalError::io("write", to))
}
