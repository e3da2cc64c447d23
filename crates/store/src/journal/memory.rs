//! A journal in memory, for tests and for sessions that are not stored.

use std::sync::{Arc, Mutex};

use base::{Digest, lock};
use protocol::{Event, EventDraft, SessionId};
use tokio::sync::watch;

use super::encoded_drafts::EncodedDrafts;
use super::line;
use super::position::JournalPosition;
use super::record_batch::RecordBatch;
use super::{Journal, JournalError, LineDefect, StoredRange};
use crate::Clock;

/// A journal that holds the same lines as a file would, until the process ends.
pub struct MemoryJournal {
    session: SessionId,
    clock: Arc<dyn Clock>,
    records: Mutex<StoredLines>,
    last: watch::Sender<u64>,
}

struct StoredLines {
    lines: Vec<Vec<u8>>,
    position: JournalPosition,
    prev: Digest,
}

impl MemoryJournal {
    /// Returns an empty journal.
    pub fn new(session: SessionId, clock: Arc<dyn Clock>) -> Self {
        let records = StoredLines { lines: Vec::new(), position: JournalPosition::default(), prev: Digest::ZERO };
        Self { session, clock, records: Mutex::new(records), last: watch::Sender::new(0) }
    }
}

impl Journal for MemoryJournal {
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        let drafts = EncodedDrafts::new(drafts)?;
        let mut records = lock(&self.records);
        let mut batch = RecordBatch::new(records.position, records.prev, Vec::new());
        let stored = batch.fill(&self.session, self.clock.now(), &drafts)?;
        records.lines.extend(batch.lines().map(<[u8]>::to_vec));
        (records.position, records.prev) = (batch.position, batch.prev);
        self.last.send_replace(batch.position.sequence);
        Ok(stored)
    }

    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        let records = lock(&self.records);
        let skipped = usize::try_from(sequence).unwrap_or(usize::MAX);
        let decode = |(index, line): (usize, &Vec<u8>)| match line::decode(line) {
            Ok(decoded) => Ok(decoded.event),
            Err(error) => Err(JournalError::Damaged {
                path: "memory".into(),
                line: index as u64 + 1,
                byte: 0,
                defect: LineDefect::NotARecord(error),
            }),
        };
        records.lines.iter().enumerate().skip(skipped).take(limit).map(decode).collect()
    }

    fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn sync(&self) -> Result<(), JournalError> {
        Ok(())
    }
}
