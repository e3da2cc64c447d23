//! The event feed: one order and one number for the events of all sessions of a data directory.
//!
//! The file consists of records of fixed size. A record says: this session has events up to this sequence, and the last
//! of them has this number in the feed. The events themselves are in the journals, and missing records can be rebuilt
//! from them. Several processes may extend the file, one at a time. A number never changes, also across kill -9, so a
//! client can continue from its cursor. The file is not synced: after a power cut, [`FeedCursor`] detects numbers that
//! were lost and assigned again, because it contains session and sequence as well.

mod cursor;
mod growth;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;

use base::lock;
use uuid::Uuid;

use crate::{DataDir, JournalError};

pub use cursor::{FeedCursor, FeedCursorError};
pub(crate) use growth::GrowthFlag;
pub use growth::{GrownSessions, GrowthTracker};

/// The first bytes of the file; the id of the feed follows.
const MAGIC: [u8; 8] = *b"vivfeed1";
const HEADER_BYTES: usize = 16;
/// Session row, sequence and number, eight bytes each.
const RECORD_BYTES: usize = 24;

/// The feed of all events of a data directory.
pub struct EventFeed {
    file: File,
    path: PathBuf,
    id: u64,
    contents: Mutex<FeedContents>,
}

/// The part of the file that was read so far.
#[derive(Debug, Default)]
struct FeedContents {
    records: u64,
    total: u64,
    /// The last sequence of each session, by its row number in the sessions index.
    sessions: HashMap<i64, u64>,
}

/// Consecutive events of one session in the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRange {
    /// The row number of the session in the sessions index.
    pub place: i64,
    /// Sequence of the first event.
    pub first: u64,
    /// Sequence of the last event.
    pub last: u64,
    /// Number of the last event in the feed.
    pub number: u64,
}

#[derive(Debug, Clone, Copy)]
struct FeedRecord {
    place: i64,
    sequence: u64,
    number: u64,
}

impl EventFeed {
    /// Opens the feed of `directory`, or creates it.
    pub fn open(directory: &DataDir) -> Result<Self, JournalError> {
        let path = directory.feed();
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = opened.map_err(JournalError::io("open", &path))?;
        let id = with_lock(&file, read_or_create_header).map_err(JournalError::io("read", &path))?;
        Ok(Self { file, path, id, contents: Mutex::default() })
    }

    /// Adds the new events of sessions, given as row number and last sequence. Returns the number of the last event.
    pub fn extend(&self, grown: impl IntoIterator<Item = (i64, u64)>) -> Result<u64, JournalError> {
        let mut contents = lock(&self.contents);
        let extended = with_lock(&self.file, |file| {
            contents.read(file)?;
            let mut bytes = Vec::new();
            let mut next = contents.total;
            let mut new = Vec::new();
            for (place, sequence) in grown {
                let before = contents.sessions.get(&place).copied().unwrap_or(0);
                if sequence > before {
                    next += sequence - before;
                    let record = FeedRecord { place, sequence, number: next };
                    bytes.extend(record.encode());
                    new.push(record);
                }
            }
            file.write_all_at(&bytes, offset(contents.records))?;
            for record in new {
                contents.add(record);
            }
            Ok(contents.total)
        });
        extended.map_err(JournalError::io("extend", &self.path))
    }

    /// Returns the first `limit` ranges of events numbered above `number`; empty at the end.
    pub fn after(&self, number: u64, limit: usize) -> Result<Vec<EventRange>, JournalError> {
        let records = lock(&self.contents).records;
        let read = || {
            let first = self.search(number, records)?;
            let mut ranges = Vec::new();
            for index in first..records.min(first.saturating_add(limit as u64)) {
                let before = if index == 0 { 0 } else { self.record(index - 1)?.number };
                let record = self.record(index)?;
                // Sequences and numbers count the same events, so both grow by the same amount.
                let count = record.number.saturating_sub(before.max(number));
                let range = EventRange {
                    place: record.place,
                    first: (record.sequence + 1).saturating_sub(count),
                    last: record.sequence,
                    number: record.number,
                };
                ranges.push(range);
            }
            Ok(ranges)
        };
        read().map_err(|source: io::Error| JournalError::io("read", &self.path)(source))
    }

    /// Returns the cursor after event `sequence` of the session in row `place`, which has the number `number`.
    pub fn cursor(&self, number: u64, place: i64, sequence: u64) -> FeedCursor {
        FeedCursor { feed: self.id, number, place, sequence }
    }

    /// Returns the cursor after the last event.
    pub fn end(&self) -> Result<FeedCursor, JournalError> {
        let (records, total) = {
            let contents = lock(&self.contents);
            (contents.records, contents.total)
        };
        let Some(last) = records.checked_sub(1) else { return Ok(self.cursor(0, 0, 0)) };
        let record = self.record(last).map_err(JournalError::io("read", &self.path))?;
        Ok(self.cursor(total, record.place, record.sequence))
    }

    /// Returns whether `cursor` belongs to this feed and still names the same event.
    pub fn contains(&self, cursor: &FeedCursor) -> Result<bool, JournalError> {
        if cursor.feed != self.id || cursor.number == 0 {
            return Ok(cursor.feed == self.id && cursor.place == 0 && cursor.sequence == 0);
        }
        let range = self.after(cursor.number - 1, 1)?.pop();
        Ok(range.is_some_and(|range| range.place == cursor.place && range.first == cursor.sequence))
    }

    /// Returns the index of the first record with events numbered above `number`.
    fn search(&self, number: u64, records: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, records);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.record(middle)?.number > number {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    fn record(&self, index: u64) -> io::Result<FeedRecord> {
        let mut bytes = [0; RECORD_BYTES];
        self.file.read_exact_at(&mut bytes, offset(index))?;
        Ok(FeedRecord::decode(&bytes))
    }
}

impl FeedContents {
    /// Reads the records of other processes. An incomplete record at the end is ignored; the next write replaces it.
    fn read(&mut self, file: &File) -> io::Result<()> {
        let complete = file.metadata()?.len().saturating_sub(HEADER_BYTES as u64) / RECORD_BYTES as u64;
        let count = usize::try_from(complete.saturating_sub(self.records)).unwrap_or(0);
        let mut bytes = vec![0; count * RECORD_BYTES];
        file.read_exact_at(&mut bytes, offset(self.records))?;
        for record in bytes.as_chunks::<RECORD_BYTES>().0 {
            self.add(FeedRecord::decode(record));
        }
        Ok(())
    }

    fn add(&mut self, record: FeedRecord) {
        self.records += 1;
        self.total = record.number;
        self.sessions.insert(record.place, record.sequence);
    }
}

impl FeedRecord {
    fn encode(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&self.place.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            word
        };
        Self {
            place: i64::from_le_bytes(word(0)),
            sequence: u64::from_le_bytes(word(8)),
            number: u64::from_le_bytes(word(16)),
        }
    }
}

/// Returns the id of the feed. A file without a valid header is emptied and gets a new id, so that cursors of the old
/// feed are not accepted.
fn read_or_create_header(file: &File) -> io::Result<u64> {
    let mut header = [0; HEADER_BYTES];
    let read = file.read_exact_at(&mut header, 0);
    let (magic, id) = header.split_at(MAGIC.len());
    if read.is_ok() && magic == MAGIC {
        return Ok(u64::from_le_bytes(id.try_into().unwrap_or_default()));
    }
    let (id, _) = Uuid::new_v4().as_u64_pair();
    file.set_len(0)?;
    file.write_all_at(&[MAGIC, id.to_le_bytes()].concat(), 0)?;
    Ok(id)
}

fn offset(index: u64) -> u64 {
    HEADER_BYTES as u64 + index * RECORD_BYTES as u64
}

/// Runs `work` while this process holds the lock of the file.
fn with_lock<T>(file: &File, work: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    file.lock()?;
    let result = work(file);
    // Unlocked explicitly: a child process that is being started holds a copy of the descriptor until its exec.
    file.unlock()?;
    result
}
