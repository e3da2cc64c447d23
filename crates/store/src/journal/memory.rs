//! A journal in memory, for tests and sessions nobody wants to keep.

use std::sync::{Arc, Mutex};

use base::{Digest, lock};
use protocol::{Event, EventDraft, SessionId};
use tokio::sync::watch;

use super::line;
use super::script::Script;
use super::sheet::Sheet;
use super::stamp::Stamp;
use super::{Journal, JournalError, LineDefect, StoredRange};
use crate::Clock;

/// Keeps the same lines as a file would, but not after the process.
pub struct MemoryJournal {
    session: SessionId,
    clock: Arc<dyn Clock>,
    records: Mutex<Records>,
    last: watch::Sender<u64>,
}

struct Records {
    lines: Vec<Vec<u8>>,
    stamp: Stamp,
    prev: Digest,
}

impl MemoryJournal {
    /// An empty journal.
    pub fn new(session: SessionId, clock: Arc<dyn Clock>) -> Self {
        let records = Records { lines: Vec::new(), stamp: Stamp::default(), prev: Digest::ZERO };
        Self { session, clock, records: Mutex::new(records), last: watch::Sender::new(0) }
    }
}

impl Journal for MemoryJournal {
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        let script = Script::of(drafts)?;
        let mut records = lock(&self.records);
        let mut sheet = Sheet::new(records.stamp, records.prev, Vec::new());
        let stored = sheet.fill(&self.session, self.clock.now(), &script)?;
        records.lines.extend(sheet.lines().map(<[u8]>::to_vec));
        (records.stamp, records.prev) = (sheet.stamp, sheet.prev);
        self.last.send_replace(sheet.stamp.sequence);
        Ok(stored)
    }

    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        let records = lock(&self.records);
        let skipped = usize::try_from(sequence).unwrap_or(usize::MAX);
        let read = |(number, line): (usize, &Vec<u8>)| match line::decode(line) {
            Ok(decoded) => Ok(decoded.event),
            Err(error) => Err(JournalError::Damaged {
                path: "memory".into(),
                line: number as u64 + 1,
                byte: 0,
                defect: LineDefect::NotARecord(error),
            }),
        };
        records.lines.iter().enumerate().skip(skipped).take(limit).map(read).collect()
    }

    fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn sync(&self) -> Result<(), JournalError> {
        Ok(())
    }
}
