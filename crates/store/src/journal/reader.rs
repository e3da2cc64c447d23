//! Reading a journal that another process may be writing.

use std::fs::File;
use std::path::{Path, PathBuf};

use protocol::{Event, SessionId};

use super::line_reader::{FileRegion, LineReader, RecordOffset};
use super::offset_index::OffsetIndex;
use super::{JournalError, LineDefect};

/// A read-only view of a journal. It locks, truncates and creates nothing.
pub struct JournalReader {
    path: PathBuf,
    session: SessionId,
    file: File,
}

impl JournalReader {
    /// Opens the journal at `path` for reading.
    pub fn open(path: impl Into<PathBuf>, session: SessionId) -> Result<Self, JournalError> {
        let path = path.into();
        let file = File::open(&path).map_err(JournalError::io("open", &path))?;
        Ok(Self { path, session, file })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns at most `limit` complete events numbered above `sequence`, in order; empty at the end.
    pub fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        let region = self.region()?;
        let Some(first) = sequence.checked_add(1) else { return Ok(Vec::new()) };
        let index = OffsetIndex::of(&self.path);
        // The writer may not have added the entry yet; then reading starts at the last entry there is.
        let latest = || index.latest(&region).filter(|offset| offset.sequence <= first);
        let start = index.nearest(&region, first).or_else(latest).unwrap_or(RecordOffset::FIRST);
        let mut lines = LineReader::new(region, start);
        if skip_to(&mut lines, first)? { collect(&mut lines, limit) } else { Ok(Vec::new()) }
    }

    /// Returns the number of the last complete record; 0 in an empty journal.
    pub fn last(&self) -> Result<u64, JournalError> {
        let region = self.region()?;
        let start = OffsetIndex::of(&self.path).latest(&region).unwrap_or(RecordOffset::FIRST);
        let mut lines = LineReader::new(region, start);
        while lines.skip()? {}
        Ok(lines.offset().sequence - 1)
    }

    fn region(&self) -> Result<FileRegion<'_>, JournalError> {
        let end = self.file.metadata().map_err(JournalError::io("read", &self.path))?.len();
        Ok(FileRegion { file: &self.file, path: &self.path, session: Some(&self.session), end })
    }
}

/// Returns the `count` records from number `first` on. Fails when one of them is missing.
///
/// `start` is the offset of record `first`, if the caller knows it.
pub(super) fn read_page(
    region: FileRegion<'_>,
    start: Option<RecordOffset>,
    first: u64,
    count: usize,
) -> Result<Vec<Event>, JournalError> {
    let index = OffsetIndex::of(region.path);
    let start = match start.or_else(|| index.nearest(&region, first)) {
        Some(start) => start,
        None => index.rebuild(region, first)?,
    };
    let mut lines = LineReader::new(region, start);
    skip_to(&mut lines, first)?;
    let events = collect(&mut lines, count)?;
    if events.len() < count {
        return Err(lines.damaged(LineDefect::Length { expected: region.end, found: lines.offset().byte }));
    }
    Ok(events)
}

/// Skips the records before `sequence`; returns false if the region ends before that record.
fn skip_to(lines: &mut LineReader<'_>, sequence: u64) -> Result<bool, JournalError> {
    while lines.offset().sequence < sequence {
        if !lines.skip()? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn collect(lines: &mut LineReader<'_>, limit: usize) -> Result<Vec<Event>, JournalError> {
    let mut events = Vec::with_capacity(limit.min(1024));
    while events.len() < limit {
        let Some(event) = lines.next()? else { break };
        events.push(event);
    }
    Ok(events)
}
