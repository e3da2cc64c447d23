//! Reading and checking the lines of a journal in order.
//!
//! Every decoded line is checked against the line before it: number, session, hash, and that the session had not ended.
//! A line counts as complete only with its newline.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use base::Digest;
use protocol::{Event, EventBody, SessionId};

use super::line::{self, MAX_LINE_BYTES};
use super::{JournalError, LineDefect};

const BUFFER_BYTES: usize = 32 << 10;

/// The part of a journal file that may be read.
#[derive(Clone, Copy)]
pub(super) struct FileRegion<'a> {
    pub(super) file: &'a File,
    pub(super) path: &'a Path,
    /// The session of the records; `None` accepts the session of the first record.
    pub(super) session: Option<&'a SessionId>,
    /// The region ends before this byte.
    pub(super) end: u64,
}

/// The number of a record and the offset of its line in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordOffset {
    pub(super) sequence: u64,
    pub(super) byte: u64,
}

impl RecordOffset {
    pub(super) const FIRST: Self = Self { sequence: 1, byte: 0 };
}

/// A reader over the lines of a region.
pub(super) struct LineReader<'a> {
    region: FileRegion<'a>,
    source: BufReader<PositionedReader<'a>>,
    offset: RecordOffset,
    session: Option<SessionId>,
    prev: Option<Digest>,
    ended: bool,
    line: Vec<u8>,
}

impl<'a> LineReader<'a> {
    /// Starts at `start`, which must be the start of a line.
    pub(super) fn new(region: FileRegion<'a>, start: RecordOffset) -> Self {
        let source = PositionedReader { file: region.file, offset: start.byte, end: region.end };
        Self {
            region,
            source: BufReader::with_capacity(BUFFER_BYTES, source),
            offset: start,
            session: region.session.cloned(),
            prev: (start == RecordOffset::FIRST).then_some(Digest::ZERO),
            ended: false,
            line: Vec::new(),
        }
    }

    /// Returns the next record; `None` at the end of the region or before a line without a newline.
    pub(super) fn next(&mut self) -> Result<Option<Event>, JournalError> {
        if !self.read_line()? {
            return Ok(None);
        }
        let decoded = line::decode(&self.line).map_err(|error| self.damaged(LineDefect::NotARecord(error)))?;
        let event = decoded.event;
        if event.sequence != self.offset.sequence {
            return Err(self.damaged(LineDefect::Gap { expected: self.offset.sequence, found: event.sequence }));
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
        self.advance();
        Ok(Some(event))
    }

    /// Skips a line without decoding it. Returns false where [`LineReader::next`] returns `None`.
    pub(super) fn skip(&mut self) -> Result<bool, JournalError> {
        let complete = self.read_line()?;
        if complete {
            self.advance();
        }
        Ok(complete)
    }

    /// Returns the number and offset of the next line.
    pub(super) fn offset(&self) -> RecordOffset {
        self.offset
    }

    /// Returns the digest that the next line must contain; `None` before the first line that was read.
    pub(super) fn prev(&self) -> Option<Digest> {
        self.prev
    }

    /// Returns the bytes after the last newline. Valid at the end of the region.
    pub(super) fn torn(&self) -> &[u8] {
        &self.line
    }

    /// Checks that the bytes after the last newline can be a record that a crash cut off.
    ///
    /// Fails for any other bytes: they must not be truncated, because they may be a user's file.
    pub(super) fn check_torn(&self) -> Result<(), JournalError> {
        let prefix = line::line_prefix(self.offset.sequence);
        let common = prefix.len().min(self.line.len());
        // After a power cut, a file system may show the length of a write without its bytes.
        let all_zero = self.line.iter().all(|byte| *byte == 0);
        if all_zero || self.line[..common] == prefix[..common] {
            return Ok(());
        }
        Err(self.damaged(LineDefect::Foreign(self.offset.sequence)))
    }

    /// Returns the error for `defect` in the next line.
    pub(super) fn damaged(&self, defect: LineDefect) -> JournalError {
        let RecordOffset { sequence, byte } = self.offset;
        JournalError::Damaged { path: self.region.path.to_owned(), line: sequence, byte, defect }
    }

    /// Reads up to the next newline; returns false if the region ends before it.
    fn read_line(&mut self) -> Result<bool, JournalError> {
        self.line.clear();
        let limit = MAX_LINE_BYTES as u64 + 1;
        let read = self.source.by_ref().take(limit).read_until(b'\n', &mut self.line);
        read.map_err(JournalError::io("read", self.region.path))?;
        if self.line.len() > MAX_LINE_BYTES {
            return Err(self.damaged(LineDefect::TooLong(MAX_LINE_BYTES)));
        }
        Ok(self.line.ends_with(b"\n"))
    }

    fn advance(&mut self) {
        self.prev = Some(line::digest(&self.line));
        self.offset.sequence += 1;
        self.offset.byte += self.line.len() as u64;
    }
}

/// A reader with its own file position, so that readers and the writer can share one descriptor.
struct PositionedReader<'a> {
    file: &'a File,
    offset: u64,
    end: u64,
}

impl Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let count = self.file.read_at(&mut buffer[..wanted], self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}
