//! The index file of a journal: the offset of every 64th record, so that reading a page does not read the whole file.
//!
//! `<session>.idx` holds one little-endian `u64` for each of the records 65, 129, 193 … The index is only a hint. An
//! offset is used only if the expected record starts there; otherwise the index is rebuilt from the journal. Losing the
//! index loses no data, so a failure to write it is ignored.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::JournalError;
use super::line;
use super::line_reader::{FileRegion, LineReader, RecordOffset};

/// Records per index entry.
const STRIDE: u64 = 64;
const ENTRY_BYTES: u64 = 8;

/// The index file of one journal.
pub(super) struct OffsetIndex {
    path: PathBuf,
}

impl OffsetIndex {
    /// Returns the index of the journal at `journal`.
    pub(super) fn of(journal: &Path) -> Self {
        Self { path: journal.with_extension("idx") }
    }

    /// Returns whether the record numbered `sequence` has an entry.
    pub(super) fn has_entry(sequence: u64) -> bool {
        sequence > 1 && sequence % STRIDE == 1
    }

    /// Returns the offset of the last indexed record at or before `sequence`; `None` if its entry is missing or wrong.
    pub(super) fn nearest(&self, region: &FileRegion<'_>, sequence: u64) -> Option<RecordOffset> {
        let entry = sequence.saturating_sub(1) / STRIDE;
        if entry == 0 {
            return Some(RecordOffset::FIRST);
        }
        self.read_entry(region, entry)
    }

    /// Returns the offset in the last entry; `None` if there is no entry or it is wrong.
    pub(super) fn latest(&self, region: &FileRegion<'_>) -> Option<RecordOffset> {
        let entry = std::fs::metadata(&self.path).ok()?.len() / ENTRY_BYTES;
        self.read_entry(region, entry)
    }

    /// Adds the entry of one record.
    pub(super) fn add(&self, offset: RecordOffset) {
        // A reader that misses the entry rebuilds the index.
        let _ = self.open().and_then(|file| write_entry(&file, offset));
    }

    /// Removes every entry from the record numbered `from` on, and writes `offsets` instead.
    pub(super) fn replace(&self, from: u64, offsets: &[RecordOffset]) {
        let kept_bytes = from.saturating_sub(1) / STRIDE * ENTRY_BYTES;
        if kept_bytes == 0 && offsets.is_empty() {
            // Most sessions have fewer than 65 records and need no index file.
            let _ = std::fs::remove_file(&self.path);
            return;
        }
        let _ = self.open().and_then(|file| {
            file.set_len(kept_bytes)?;
            offsets.iter().try_for_each(|offset| write_entry(&file, *offset))
        });
    }

    /// Reads the whole journal, writes all entries, and returns the last indexed offset at or before `sequence`.
    pub(super) fn rebuild(&self, region: FileRegion<'_>, sequence: u64) -> Result<RecordOffset, JournalError> {
        let mut lines = LineReader::new(region, RecordOffset::FIRST);
        let mut nearest = RecordOffset::FIRST;
        let file = self.open().ok();
        loop {
            let offset = lines.offset();
            if !lines.skip()? {
                return Ok(nearest);
            }
            if Self::has_entry(offset.sequence) {
                file.as_ref().map(|file| write_entry(file, offset));
                if offset.sequence <= sequence {
                    nearest = offset;
                }
            }
        }
    }

    fn read_entry(&self, region: &FileRegion<'_>, entry: u64) -> Option<RecordOffset> {
        let mut bytes = 0_u64.to_le_bytes();
        let entry_offset = entry.checked_sub(1)? * ENTRY_BYTES;
        File::open(&self.path).ok()?.read_exact_at(&mut bytes, entry_offset).ok()?;
        let offset = RecordOffset { sequence: entry * STRIDE + 1, byte: u64::from_le_bytes(bytes) };
        record_starts_at(region, offset).then_some(offset)
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)
    }
}

fn write_entry(file: &File, offset: RecordOffset) -> io::Result<()> {
    let entry = (offset.sequence - 1) / STRIDE - 1;
    file.write_all_at(&offset.byte.to_le_bytes(), entry * ENTRY_BYTES)
}

/// Returns whether the line at `offset` starts like the record that `offset` names.
fn record_starts_at(region: &FileRegion<'_>, offset: RecordOffset) -> bool {
    let mut expected = vec![b'\n'];
    expected.extend(line::line_prefix(offset.sequence));
    let mut found = vec![0; expected.len()];
    let Some(newline) = offset.byte.checked_sub(1) else { return false };
    offset.byte < region.end && region.file.read_exact_at(&mut found, newline).is_ok() && found == expected
}
