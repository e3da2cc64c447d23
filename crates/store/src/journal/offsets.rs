//! Where every 64th record begins: the sidecar that makes a page cheap.
//!
//! `<session>.idx` holds one little-endian `u64` for the records 65, 129, 193 … It is a hint and never
//! believed: what it points at must look like the record it names, else it is made again from the
//! journal. So nothing is lost with it, and failing to write it is no error.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::JournalError;
use super::line;
use super::walk::{Region, Start, Walk};

/// One entry each so many records.
const STRIDE: u64 = 64;
const ENTRY_BYTES: u64 = 8;

/// The sidecar of one journal.
pub(super) struct Offsets {
    path: PathBuf,
}

impl Offsets {
    /// The sidecar of the journal at `journal`.
    pub(super) fn of(journal: &Path) -> Self {
        Self { path: journal.with_extension("idx") }
    }

    /// Whether the record numbered `sequence` has an entry.
    pub(super) fn marks(sequence: u64) -> bool {
        sequence > 1 && sequence % STRIDE == 1
    }

    /// The nearest known start at or before the record `sequence`.
    pub(super) fn before(&self, region: &Region<'_>, sequence: u64) -> Option<Start> {
        let entry = sequence.saturating_sub(1) / STRIDE;
        if entry == 0 {
            return Some(Start::FIRST);
        }
        self.entry(region, entry)
    }

    /// The last start there is an entry for.
    pub(super) fn latest(&self, region: &Region<'_>) -> Option<Start> {
        let entry = std::fs::metadata(&self.path).ok()?.len() / ENTRY_BYTES;
        self.entry(region, entry)
    }

    /// Notes where a marked record begins.
    pub(super) fn note(&self, start: Start) {
        // Without the entry a reader makes the index again.
        let _ = self.open().and_then(|file| write(&file, start));
    }

    /// Forgets every entry from the record `starts` begins at, and notes `starts` in their place.
    pub(super) fn replace(&self, from: u64, starts: &[Start]) {
        let kept = from.saturating_sub(1) / STRIDE * ENTRY_BYTES;
        if kept == 0 && starts.is_empty() {
            // A file of nothing is none: most sessions never have sixty-five records.
            let _ = std::fs::remove_file(&self.path);
            return;
        }
        let _ = self.open().and_then(|file| {
            file.set_len(kept)?;
            starts.iter().try_for_each(|start| write(&file, *start))
        });
    }

    /// Reads the whole journal for its marks, notes them, and returns the one at or before `sequence`.
    pub(super) fn rebuild(&self, region: Region<'_>, sequence: u64) -> Result<Start, JournalError> {
        let mut walk = Walk::new(region, Start::FIRST);
        let mut nearest = Start::FIRST;
        let file = self.open().ok();
        loop {
            let start = walk.at();
            if !walk.skip()? {
                return Ok(nearest);
            }
            if Self::marks(start.sequence) {
                file.as_ref().map(|file| write(file, start));
                if start.sequence <= sequence {
                    nearest = start;
                }
            }
        }
    }

    fn entry(&self, region: &Region<'_>, entry: u64) -> Option<Start> {
        let mut bytes = 0_u64.to_le_bytes();
        let place = entry.checked_sub(1)? * ENTRY_BYTES;
        File::open(&self.path).ok()?.read_exact_at(&mut bytes, place).ok()?;
        let start = Start { sequence: entry * STRIDE + 1, offset: u64::from_le_bytes(bytes) };
        leads_to_a_line(region, start).then_some(start)
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)
    }
}

fn write(file: &File, start: Start) -> io::Result<()> {
    let place = (start.sequence - 1) / STRIDE - 1;
    file.write_all_at(&start.offset.to_le_bytes(), place * ENTRY_BYTES)
}

/// Whether the line that begins at `start` says it is the record `start` names.
fn leads_to_a_line(region: &Region<'_>, start: Start) -> bool {
    let mut expected = vec![b'\n'];
    expected.extend(line::opening(start.sequence));
    let mut found = vec![0; expected.len()];
    let Some(place) = start.offset.checked_sub(1) else { return false };
    start.offset < region.end && region.file.read_exact_at(&mut found, place).is_ok() && found == expected
}
