//! The order in which the events of all sessions became known: a number for each event of a data directory.
//!
//! A file of records of one size: this session is known up to this event, which is number so-and-so of all. It holds no
//! event: those are in the journals, and whatever it lacks is found by looking at them. Several processes may extend it,
//! one at a time, and a number that was given stays given: a reader that comes back goes on where it was, also after
//! kill -9. It is not synced. What a power loss takes from its end is told apart by [`FeedCursor`], which names session and
//! sequence beside the number.

mod growth;
mod spot;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;

use base::lock;
use uuid::Uuid;

use crate::{DataDir, JournalError};

pub(crate) use growth::Mark;
pub use growth::{GrownSessions, GrowthTracker};
pub use spot::{FeedCursor, FeedCursorError};

/// What the file begins with; the name of the feed follows it.
const MAGIC: [u8; 8] = *b"vivfeed1";
const HEAD: usize = 16;
/// Place, sequence, number.
const RECORD: usize = 24;

/// The order of all events.
pub struct EventFeed {
    file: File,
    path: PathBuf,
    id: u64,
    known: Mutex<Known>,
}

/// What was read of the file so far.
#[derive(Debug, Default)]
struct Known {
    records: u64,
    total: u64,
    /// The last sequence of each session, by its place in the list of sessions.
    sessions: HashMap<i64, u64>,
}

/// Events of one session that became known together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRange {
    /// The session, by its place in the list of sessions.
    pub place: i64,
    /// Sequence of the first of them.
    pub first: u64,
    /// Sequence of the last of them.
    pub last: u64,
    /// Number of the last of them.
    pub number: u64,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    place: i64,
    sequence: u64,
    number: u64,
}

impl EventFeed {
    /// Opens the feed of `directory`, or makes it.
    pub fn open(directory: &DataDir) -> Result<Self, JournalError> {
        let path = directory.feed();
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = opened.map_err(JournalError::io("open", &path))?;
        let id = locked(&file, head).map_err(JournalError::io("read", &path))?;
        Ok(Self { file, path, id, known: Mutex::default() })
    }

    /// Makes known that sessions have grown: the place of each, and its last sequence. Returns the number of the last
    /// event of all.
    pub fn extend(&self, grown: impl IntoIterator<Item = (i64, u64)>) -> Result<u64, JournalError> {
        let mut known = lock(&self.known);
        let extended = locked(&self.file, |file| {
            known.read(file)?;
            let mut bytes = Vec::new();
            let mut next = known.total;
            let mut new = Vec::new();
            for (place, sequence) in grown {
                let before = known.sessions.get(&place).copied().unwrap_or(0);
                if sequence > before {
                    next += sequence - before;
                    let record = Record { place, sequence, number: next };
                    bytes.extend(record.encode());
                    new.push(record);
                }
            }
            file.write_all_at(&bytes, offset(known.records))?;
            for record in new {
                known.take(record);
            }
            Ok(known.total)
        });
        extended.map_err(JournalError::io("extend", &self.path))
    }

    /// The first `limit` runs with events numbered above `number`, cut so that they begin behind it.
    pub fn after(&self, number: u64, limit: usize) -> Result<Vec<EventRange>, JournalError> {
        let records = lock(&self.known).records;
        let read = || {
            let first = self.search(number, records)?;
            let mut runs = Vec::new();
            for index in first..records.min(first.saturating_add(limit as u64)) {
                let before = if index == 0 { 0 } else { self.record(index - 1)?.number };
                let record = self.record(index)?;
                // Both count the same events, so that the difference of one is that of the other.
                let count = record.number.saturating_sub(before.max(number));
                let run = EventRange {
                    place: record.place,
                    first: (record.sequence + 1).saturating_sub(count),
                    last: record.sequence,
                    number: record.number,
                };
                runs.push(run);
            }
            Ok(runs)
        };
        read().map_err(|source: io::Error| JournalError::io("read", &self.path)(source))
    }

    /// Where event `sequence` of the session at `place` is, which has number `number`.
    pub fn cursor(&self, number: u64, place: i64, sequence: u64) -> FeedCursor {
        FeedCursor { feed: self.id, number, place, sequence }
    }

    /// Where the feed ends now.
    pub fn end(&self) -> Result<FeedCursor, JournalError> {
        let (records, total) = {
            let known = lock(&self.known);
            (known.records, known.total)
        };
        let Some(last) = records.checked_sub(1) else { return Ok(self.cursor(0, 0, 0)) };
        let record = self.record(last).map_err(JournalError::io("read", &self.path))?;
        Ok(self.cursor(total, record.place, record.sequence))
    }

    /// Whether `spot` is a place of this feed, with this very event.
    pub fn contains(&self, spot: &FeedCursor) -> Result<bool, JournalError> {
        if spot.feed != self.id || spot.number == 0 {
            return Ok(spot.feed == self.id && spot.place == 0 && spot.sequence == 0);
        }
        let run = self.after(spot.number - 1, 1)?.pop();
        Ok(run.is_some_and(|run| run.place == spot.place && run.first == spot.sequence))
    }

    /// Index of the first record that reaches beyond `number`.
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

    fn record(&self, index: u64) -> io::Result<Record> {
        let mut bytes = [0; RECORD];
        self.file.read_exact_at(&mut bytes, offset(index))?;
        Ok(Record::decode(&bytes))
    }
}

impl Known {
    /// Reads what others have written since, and leaves out a record that is not whole: the next one overwrites it.
    fn read(&mut self, file: &File) -> io::Result<()> {
        let whole = file.metadata()?.len().saturating_sub(HEAD as u64) / RECORD as u64;
        let count = usize::try_from(whole.saturating_sub(self.records)).unwrap_or(0);
        let mut bytes = vec![0; count * RECORD];
        file.read_exact_at(&mut bytes, offset(self.records))?;
        for record in bytes.as_chunks::<RECORD>().0 {
            self.take(Record::decode(record));
        }
        Ok(())
    }

    fn take(&mut self, record: Record) {
        self.records += 1;
        self.total = record.number;
        self.sessions.insert(record.place, record.sequence);
    }
}

impl Record {
    fn encode(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..8].copy_from_slice(&self.place.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD]) -> Self {
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

/// The name of the feed, which is given when its file is made. A file that is no feed is begun anew, under another name,
/// so that nobody takes its places for those of the old one.
fn head(file: &File) -> io::Result<u64> {
    let mut head = [0; HEAD];
    let read = file.read_exact_at(&mut head, 0);
    let (magic, id) = head.split_at(MAGIC.len());
    if read.is_ok() && magic == MAGIC {
        return Ok(u64::from_le_bytes(id.try_into().unwrap_or_default()));
    }
    let (id, _) = Uuid::new_v4().as_u64_pair();
    file.set_len(0)?;
    file.write_all_at(&[MAGIC, id.to_le_bytes()].concat(), 0)?;
    Ok(id)
}

fn offset(index: u64) -> u64 {
    HEAD as u64 + index * RECORD as u64
}

/// Works on the file while no other process does.
fn locked<T>(file: &File, work: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    file.lock()?;
    let done = work(file);
    // By word: closing would leave it to a child that is being started just now.
    file.unlock()?;
    done
}
