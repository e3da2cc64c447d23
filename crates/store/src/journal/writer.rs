//! The end of a journal file, where records are added.
//!
//! One write for what is appended together. What a failed write left is cut away before the next one, so the file holds
//! whole records whenever nobody is writing.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Digest;
use protocol::SessionId;

use super::offsets::Offsets;
use super::sheet::Sheet;
use super::stamp::Stamp;
use super::walk::{Region, Start, Walk};
use super::{JournalError, LineDefect};

/// How long a lock may seem held before it is.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// So many of the last records are found without the sidecar: live readers ask for nothing else.
const RECENT: usize = 64;

/// Room for lines of so many bytes is kept for the next ones.
const KEPT_ROOM: usize = 256 << 10;

/// Everything the next append must know. A few hundred bytes a session, and no descriptor at rest.
pub(super) struct Writer {
    pub(super) stamp: Stamp,
    pub(super) prev: Digest,
    /// Bytes of whole records.
    pub(super) end: u64,
    /// Where the last records begin, oldest first.
    recent: VecDeque<u64>,
    file: Option<Arc<File>>,
    /// Where the next lines are put together.
    room: Vec<u8>,
    /// A write failed and could not be undone yet.
    leftover: bool,
}

impl Writer {
    /// Finds the end of the journal at `path`, cuts a torn last record, and says how many bytes that were.
    pub(super) fn open(path: &Path, session: &SessionId) -> Result<(Self, u64), JournalError> {
        let file = open_locked(path)?;
        let length = file.metadata().map_err(JournalError::io("read", path))?.len();
        let region = Region { file: &file, path, session: Some(session), end: length };
        let mut writer = Self::find_end(region)?;
        let torn_bytes = length - writer.end;
        if torn_bytes > 0 {
            file.set_len(writer.end).map_err(JournalError::io("cut the torn end of", path))?;
        }
        if length == 0 {
            // A new one is about to be written to.
            writer.file = Some(Arc::new(file));
            return Ok((writer, 0));
        }
        // The descriptor goes: a journal that only waits needs none, and 10,000 may be open.
        unlock(&file);
        Ok((writer, torn_bytes))
    }

    /// A journal that is empty, in `file`, which is locked.
    pub(super) fn new(file: File) -> Self {
        let mut writer = Self::empty();
        writer.file = Some(Arc::new(file));
        writer
    }

    /// Reads from the last mark of the sidecar, or everything where that is of no use.
    fn find_end(region: Region<'_>) -> Result<Self, JournalError> {
        if let Some(mark) = Offsets::of(region.path).latest(&region)
            && let Some(writer) = Self::read_end(region, mark)?
        {
            return Ok(writer);
        }
        Ok(Self::read_end(region, Start::FIRST)?.unwrap_or_else(Self::empty))
    }

    /// Reads from `mark` to the end of the region; none if no whole record stands there.
    fn read_end(region: Region<'_>, mark: Start) -> Result<Option<Self>, JournalError> {
        let mut writer = Self::empty();
        let mut marks = Vec::new();
        let mut walk = Walk::new(region, mark);
        loop {
            let start = walk.at();
            let Some(event) = walk.next()? else { break };
            writer.stamp = Stamp::after(&event);
            if Offsets::marks(start.sequence) {
                marks.push(start);
            }
        }
        let Some(prev) = walk.prev() else { return Ok(None) };
        walk.check_torn()?;
        writer.end = walk.at().offset;
        writer.prev = prev;
        Offsets::of(region.path).replace(mark.sequence, &marks);
        Ok(Some(writer))
    }

    fn empty() -> Self {
        Self {
            stamp: Stamp::default(),
            prev: Digest::ZERO,
            end: 0,
            recent: VecDeque::new(),
            file: None,
            room: Vec::new(),
            leftover: false,
        }
    }

    /// Adds the records of `sheet`, which must begin where the journal stands: all or none.
    pub(super) fn write(&mut self, path: &Path, sheet: Sheet) -> Result<(), JournalError> {
        let file = self.file(path)?;
        if self.leftover {
            self.undo(path, &file)?;
        }
        if let Err(error) = (&*file).write_all(sheet.bytes()) {
            self.leftover = true;
            // The write's own error is the one to tell; if this fails too, the next append tries again.
            let _ = self.undo(path, &file);
            return Err(JournalError::io("write", path)(error));
        }
        for (sequence, place) in sheet.starts() {
            let start = Start { sequence, offset: self.end + place as u64 };
            self.remember(start);
            if Offsets::marks(sequence) {
                Offsets::of(path).note(start);
            }
        }
        self.end += sheet.bytes().len() as u64;
        (self.stamp, self.prev) = (sheet.stamp, sheet.prev);
        self.keep_room(sheet.into_room());
        Ok(())
    }

    /// The descriptor that is written to, opened where there is none.
    pub(super) fn file(&mut self, path: &Path) -> Result<Arc<File>, JournalError> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(open_locked(path)?);
        let found = file.metadata().map_err(JournalError::io("read", path))?.len();
        if found != self.end && !self.leftover {
            let flaw = LineDefect::Length { expected: self.end, found };
            let (line, byte) = (self.stamp.sequence + 1, self.end.min(found));
            return Err(JournalError::Damaged { path: path.to_owned(), line, byte, defect: flaw });
        }
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// A descriptor to read by: the writer's, else one of its own.
    pub(super) fn reading(&self, path: &Path) -> Result<Arc<File>, JournalError> {
        match &self.file {
            Some(file) => Ok(Arc::clone(file)),
            None => File::open(path).map(Arc::new).map_err(JournalError::io("open", path)),
        }
    }

    /// Room to put the next lines together.
    pub(super) fn take_room(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.room)
    }

    /// Keeps the room of lines that were written for the next ones, unless they were uncommonly long.
    fn keep_room(&mut self, room: Vec<u8>) {
        if room.capacity() <= KEPT_ROOM {
            self.room = room;
        }
    }

    /// Closes the descriptor until the next append.
    pub(super) fn rest(&mut self) {
        if let Some(file) = self.file.take() {
            unlock(&file);
        }
        self.recent = VecDeque::new();
        self.room = Vec::new();
    }

    /// Where the record `sequence` begins, when it is one of the last.
    pub(super) fn recent(&self, sequence: u64) -> Option<Start> {
        let back = usize::try_from(self.stamp.sequence.checked_sub(sequence)?).ok()?;
        let place = self.recent.len().checked_sub(back + 1)?;
        self.recent.get(place).map(|offset| Start { sequence, offset: *offset })
    }

    fn remember(&mut self, start: Start) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(start.offset);
    }

    fn undo(&mut self, path: &Path, file: &File) -> Result<(), JournalError> {
        file.set_len(self.end).map_err(JournalError::io("cut a failed write from", path))?;
        self.leftover = false;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Lets go of the lock at once. Closing alone would leave it to a child that this process is starting just now,
/// which holds copies of all descriptors until its exec.
fn unlock(file: &File) {
    // What fails here is undone by closing, only later.
    let _ = file.unlock();
}

/// Opens the journal for one writer: a second process would number its records twice.
fn open_locked(path: &Path) -> Result<File, JournalError> {
    let open = || OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let opened = match (open(), path.parent()) {
        (Err(error), Some(directory)) if error.kind() == ErrorKind::NotFound => {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(JournalError::io("make the directory of", path))?;
            open()
        }
        (opened, _) => opened,
    };
    let file = opened.map_err(JournalError::io("open", path))?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            // A process that is just being started holds copies of our descriptors until it execs, and with
            // them a lock that we let go a moment ago.
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(JournalError::io("lock", path)(error)),
        }
    }
}
