//! Reads a journal that another process may be writing.

use std::fs::File;
use std::path::{Path, PathBuf};

use protocol::{Event, SessionId};

use super::offsets::Offsets;
use super::walk::{Region, Start, Walk};
use super::{JournalError, LineDefect};

/// A journal that is only looked at: nothing is locked, cut or made.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// At most `limit` events numbered above `sequence`, in order, of those that are whole now.
    pub fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        let region = self.region()?;
        let Some(first) = sequence.checked_add(1) else { return Ok(Vec::new()) };
        // What the sidecar does not know yet is read from the last place it knows.
        let known = || Offsets::of(&self.path).latest(&region).filter(|start| start.sequence <= first);
        let start = Offsets::of(&self.path).before(&region, first).or_else(known).unwrap_or(Start::FIRST);
        let mut walk = Walk::new(region, start);
        if skip_to(&mut walk, first)? { collect(&mut walk, limit) } else { Ok(Vec::new()) }
    }

    /// Number of the last whole record; 0 in an empty journal.
    pub fn last(&self) -> Result<u64, JournalError> {
        let region = self.region()?;
        let start = Offsets::of(&self.path).latest(&region).unwrap_or(Start::FIRST);
        let mut walk = Walk::new(region, start);
        while walk.skip()? {}
        Ok(walk.at().sequence - 1)
    }

    fn region(&self) -> Result<Region<'_>, JournalError> {
        let end = self.file.metadata().map_err(JournalError::io("read", &self.path))?.len();
        Ok(Region { file: &self.file, path: &self.path, session: Some(&self.session), end })
    }
}

/// Reads the `count` records from `first` on, all of which must be there. `start` says where `first` begins,
/// where that is known.
pub(super) fn read_page(
    region: Region<'_>,
    start: Option<Start>,
    first: u64,
    count: usize,
) -> Result<Vec<Event>, JournalError> {
    let offsets = Offsets::of(region.path);
    let start = match start.or_else(|| offsets.before(&region, first)) {
        Some(start) => start,
        None => offsets.rebuild(region, first)?,
    };
    let mut walk = Walk::new(region, start);
    skip_to(&mut walk, first)?;
    let events = collect(&mut walk, count)?;
    if events.len() < count {
        return Err(walk.damaged(LineDefect::Length { expected: region.end, found: walk.at().offset }));
    }
    Ok(events)
}

fn skip_to(walk: &mut Walk<'_>, sequence: u64) -> Result<bool, JournalError> {
    while walk.at().sequence < sequence {
        if !walk.skip()? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn collect(walk: &mut Walk<'_>, limit: usize) -> Result<Vec<Event>, JournalError> {
    let mut events = Vec::with_capacity(limit.min(1024));
    while events.len() < limit {
        let Some(event) = walk.next()? else { break };
        events.push(event);
    }
    Ok(events)
}
