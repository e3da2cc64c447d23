//! Appending records to a journal file.
//!
//! Records that are appended together are written with one write. Bytes of a failed write are truncated before the next
//! write, so the file holds complete records whenever no write is in progress.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Digest;
use protocol::SessionId;

use super::line_reader::{FileRegion, LineReader, RecordOffset};
use super::offset_index::OffsetIndex;
use super::position::JournalPosition;
use super::record_batch::RecordBatch;
use super::{JournalError, LineDefect};

/// How long to retry before the journal counts as locked by another process.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Offsets of this many last records are in memory, so that live readers do not need the index file.
const RECENT_OFFSETS: usize = 64;

/// A larger line buffer is freed after the write.
const MAX_KEPT_BUFFER: usize = 256 << 10;

/// The state that the next append needs: a few hundred bytes per session, and no descriptor while idle.
pub(super) struct JournalWriter {
    pub(super) position: JournalPosition,
    pub(super) prev: Digest,
    /// Bytes of complete records.
    pub(super) end: u64,
    /// Offsets of the last records, oldest first.
    recent: VecDeque<u64>,
    file: Option<Arc<File>>,
    /// The buffer for the next lines.
    buffer: Vec<u8>,
    /// Whether a write failed and its bytes are not truncated yet.
    has_partial_write: bool,
}

impl JournalWriter {
    /// Opens the journal at `path`, truncates an incomplete last record, and returns how many bytes that were.
    pub(super) fn open(path: &Path, session: &SessionId) -> Result<(Self, u64), JournalError> {
        let file = open_locked(path)?;
        let length = file.metadata().map_err(JournalError::io("read", path))?.len();
        let region = FileRegion { file: &file, path, session: Some(session), end: length };
        let mut writer = Self::find_end(region)?;
        let torn_bytes = length - writer.end;
        if torn_bytes > 0 {
            file.set_len(writer.end).map_err(JournalError::io("cut the torn end of", path))?;
        }
        if length == 0 {
            // A new journal is written to at once.
            writer.file = Some(Arc::new(file));
            return Ok((writer, 0));
        }
        // An idle journal needs no descriptor, and 10,000 journals may be open.
        unlock(&file);
        Ok((writer, torn_bytes))
    }

    /// Returns the writer of an empty journal in `file`, which must be locked.
    pub(super) fn new(file: File) -> Self {
        let mut writer = Self::empty();
        writer.file = Some(Arc::new(file));
        writer
    }

    /// Reads from the last entry of the index to the end, or the whole journal if the index is not usable.
    fn find_end(region: FileRegion<'_>) -> Result<Self, JournalError> {
        if let Some(start) = OffsetIndex::of(region.path).latest(&region)
            && let Some(writer) = Self::read_to_end(region, start)?
        {
            return Ok(writer);
        }
        Ok(Self::read_to_end(region, RecordOffset::FIRST)?.unwrap_or_else(Self::empty))
    }

    /// Reads from `start` to the end of the region and updates the index. Returns `None` without a complete record.
    fn read_to_end(region: FileRegion<'_>, start: RecordOffset) -> Result<Option<Self>, JournalError> {
        let mut writer = Self::empty();
        let mut entries = Vec::new();
        let mut lines = LineReader::new(region, start);
        loop {
            let offset = lines.offset();
            let Some(event) = lines.next()? else { break };
            writer.position = JournalPosition::after(&event);
            if OffsetIndex::has_entry(offset.sequence) {
                entries.push(offset);
            }
        }
        let Some(prev) = lines.prev() else { return Ok(None) };
        lines.check_torn()?;
        writer.end = lines.offset().byte;
        writer.prev = prev;
        OffsetIndex::of(region.path).replace(start.sequence, &entries);
        Ok(Some(writer))
    }

    fn empty() -> Self {
        Self {
            position: JournalPosition::default(),
            prev: Digest::ZERO,
            end: 0,
            recent: VecDeque::new(),
            file: None,
            buffer: Vec::new(),
            has_partial_write: false,
        }
    }

    /// Appends all records of `batch` or none. The batch must start at the current position.
    pub(super) fn write(&mut self, path: &Path, batch: RecordBatch) -> Result<(), JournalError> {
        let file = self.file(path)?;
        if self.has_partial_write {
            self.truncate_partial_write(path, &file)?;
        }
        if let Err(error) = (&*file).write_all(batch.bytes()) {
            self.has_partial_write = true;
            // The error of the write is reported; if truncating fails too, the next append tries again.
            let _ = self.truncate_partial_write(path, &file);
            return Err(JournalError::io("write", path)(error));
        }
        for (sequence, start) in batch.starts() {
            let offset = RecordOffset { sequence, byte: self.end + start as u64 };
            self.remember(offset);
            if OffsetIndex::has_entry(sequence) {
                OffsetIndex::of(path).add(offset);
            }
        }
        self.end += batch.bytes().len() as u64;
        (self.position, self.prev) = (batch.position, batch.prev);
        self.keep_buffer(batch.into_buffer());
        Ok(())
    }

    /// Returns the descriptor for writing, and opens the file if necessary.
    pub(super) fn file(&mut self, path: &Path) -> Result<Arc<File>, JournalError> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(open_locked(path)?);
        let found = file.metadata().map_err(JournalError::io("read", path))?.len();
        if found != self.end && !self.has_partial_write {
            let defect = LineDefect::Length { expected: self.end, found };
            let (line, byte) = (self.position.sequence + 1, self.end.min(found));
            return Err(JournalError::Damaged { path: path.to_owned(), line, byte, defect });
        }
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Returns a descriptor for reading: the writer's if it is open, else a new one.
    pub(super) fn open_for_reading(&self, path: &Path) -> Result<Arc<File>, JournalError> {
        match &self.file {
            Some(file) => Ok(Arc::clone(file)),
            None => File::open(path).map(Arc::new).map_err(JournalError::io("open", path)),
        }
    }

    /// Returns the buffer for the next lines.
    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    fn keep_buffer(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= MAX_KEPT_BUFFER {
            self.buffer = buffer;
        }
    }

    /// Closes the descriptor until the next append, and frees memory.
    pub(super) fn close_file(&mut self) {
        if let Some(file) = self.file.take() {
            unlock(&file);
        }
        self.recent = VecDeque::new();
        self.buffer = Vec::new();
    }

    /// Returns the offset of record `sequence` if it is one of the last records.
    pub(super) fn recent_offset(&self, sequence: u64) -> Option<RecordOffset> {
        let back = usize::try_from(self.position.sequence.checked_sub(sequence)?).ok()?;
        let index = self.recent.len().checked_sub(back + 1)?;
        self.recent.get(index).map(|byte| RecordOffset { sequence, byte: *byte })
    }

    fn remember(&mut self, offset: RecordOffset) {
        if self.recent.len() == RECENT_OFFSETS {
            self.recent.pop_front();
        }
        self.recent.push_back(offset.byte);
    }

    fn truncate_partial_write(&mut self, path: &Path, file: &File) -> Result<(), JournalError> {
        file.set_len(self.end).map_err(JournalError::io("cut a failed write from", path))?;
        self.has_partial_write = false;
        Ok(())
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        self.close_file();
    }
}

/// Releases the lock now.
///
/// Closing is not enough: a child process that is being started holds copies of all descriptors until its exec.
fn unlock(file: &File) {
    // If this fails, the lock is released when the last copy of the descriptor is closed.
    let _ = file.unlock();
}

/// Opens the journal and locks it for one writer: a second writer would assign the same numbers again.
fn open_locked(path: &Path) -> Result<File, JournalError> {
    let open = || OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let opened = match (open(), path.parent()) {
        (Err(error), Some(directory)) if error.kind() == ErrorKind::NotFound => {
            let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            created.map_err(JournalError::io("create the directory of", path))?;
            open()
        }
        (opened, _) => opened,
    };
    let file = opened.map_err(JournalError::io("open", path))?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            // A child process that is being started holds copies of our descriptors until its exec, and with them a
            // lock that was released a moment ago.
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOCK_RETRY_INTERVAL),
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(JournalError::io("lock", path)(error)),
        }
    }
}
