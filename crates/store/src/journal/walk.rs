//! Reads a journal's lines in order and believes none of them.
//!
//! Every line that is decoded is checked against the one before: number, session, hash, and that the
//! session had not ended. A line is never taken for whole before its newline was seen.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use base::Digest;
use protocol::{Event, EventBody, SessionId};

use super::line::{self, MAX_LINE_BYTES};
use super::{JournalError, LineDefect};

const BUFFER_BYTES: usize = 32 << 10;

/// The part of a file that may be read.
#[derive(Clone, Copy)]
pub(super) struct Region<'a> {
    pub(super) file: &'a File,
    pub(super) path: &'a Path,
    /// Whose records they must be; any one session's where this is not known.
    pub(super) session: Option<&'a SessionId>,
    /// Bytes from here on are not looked at.
    pub(super) end: u64,
}

/// A record's number and where its line begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) sequence: u64,
    pub(super) offset: u64,
}

impl Start {
    pub(super) const FIRST: Self = Self { sequence: 1, offset: 0 };
}

/// A walk over the lines of a region.
pub(super) struct Walk<'a> {
    region: Region<'a>,
    lines: BufReader<At<'a>>,
    at: Start,
    session: Option<SessionId>,
    prev: Option<Digest>,
    ended: bool,
    line: Vec<u8>,
}

impl<'a> Walk<'a> {
    /// Begins at `start`, which must be where a line begins.
    pub(super) fn new(region: Region<'a>, start: Start) -> Self {
        let source = At { file: region.file, offset: start.offset, end: region.end };
        Self {
            region,
            lines: BufReader::with_capacity(BUFFER_BYTES, source),
            at: start,
            session: region.session.cloned(),
            prev: (start == Start::FIRST).then_some(Digest::ZERO),
            ended: false,
            line: Vec::new(),
        }
    }

    /// The record that comes next; none at the end of the region or before a line without newline.
    pub(super) fn next(&mut self) -> Result<Option<Event>, JournalError> {
        if !self.read_line()? {
            return Ok(None);
        }
        let decoded = line::decode(&self.line).map_err(|error| self.damaged(LineDefect::NotARecord(error)))?;
        let event = decoded.event;
        if event.sequence != self.at.sequence {
            return Err(self.damaged(LineDefect::Gap { expected: self.at.sequence, found: event.sequence }));
        }
        if self.session.get_or_insert_with(|| event.session_id.clone()) != &event.session_id {
            return Err(self.damaged(LineDefect::OtherSession(event.session_id)));
        }
        if self.prev.is_some_and(|prev| prev != decoded.prev) {
            return Err(self.damaged(LineDefect::BrokenChain));
        }
        if self.ended {
            return Err(self.damaged(LineDefect::AfterEnd));
        }
        self.ended = matches!(event.draft.body, EventBody::SessionEnded(_));
        self.pass();
        Ok(Some(event))
    }

    /// Passes a line without looking into it; false where [`Walk::next`] would give none.
    pub(super) fn skip(&mut self) -> Result<bool, JournalError> {
        let whole = self.read_line()?;
        if whole {
            self.pass();
        }
        Ok(whole)
    }

    /// Where the next line begins, and its number.
    pub(super) fn at(&self) -> Start {
        self.at
    }

    /// What the next line must carry, where the line before was seen.
    pub(super) fn prev(&self) -> Option<Digest> {
        self.prev
    }

    /// The bytes after the last newline, once the walk came to its end.
    pub(super) fn torn(&self) -> &[u8] {
        &self.line
    }

    /// Whether what follows the last newline can be a record of ours that a crash cut. Anything else must
    /// not be cut away: it is somebody's file.
    pub(super) fn check_torn(&self) -> Result<(), JournalError> {
        let opening = line::opening(self.at.sequence);
        let common = opening.len().min(self.line.len());
        // After a power cut a file system may show the length of a write without its bytes.
        let blank = self.line.iter().all(|byte| *byte == 0);
        if blank || self.line[..common] == opening[..common] {
            return Ok(());
        }
        Err(self.damaged(LineDefect::Foreign(self.at.sequence)))
    }

    /// Says what is wrong with the line the walk stands at.
    pub(super) fn damaged(&self, flaw: LineDefect) -> JournalError {
        JournalError::Damaged {
            path: self.region.path.to_owned(),
            line: self.at.sequence,
            byte: self.at.offset,
            defect: flaw,
        }
    }

    fn read_line(&mut self) -> Result<bool, JournalError> {
        self.line.clear();
        let limit = MAX_LINE_BYTES as u64 + 1;
        let read = self.lines.by_ref().take(limit).read_until(b'\n', &mut self.line);
        read.map_err(JournalError::io("read", self.region.path))?;
        if self.line.len() > MAX_LINE_BYTES {
            return Err(self.damaged(LineDefect::TooLong(MAX_LINE_BYTES)));
        }
        Ok(self.line.ends_with(b"\n"))
    }

    fn pass(&mut self) {
        self.prev = Some(line::digest(&self.line));
        self.at.sequence += 1;
        self.at.offset += self.line.len() as u64;
    }
}

/// Reads a file from a place of its own, so that readers and the writer share one descriptor.
struct At<'a> {
    file: &'a File,
    offset: u64,
    end: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let count = self.file.read_at(&mut buffer[..wanted], self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}
