//! The journal of one session in one file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::lock;
use protocol::{Event, EventDraft, SessionId};
use tokio::sync::watch;

use super::encoded_drafts::EncodedDrafts;
use super::line_reader::FileRegion;
use super::reader::read_page;
use super::record_batch::RecordBatch;
use super::writer::JournalWriter;
use super::{FilePool, Journal, JournalError, StoredRange};
use crate::feed::{GrowthFlag, GrowthTracker};
use crate::{Clock, SessionTally, StorageMeter};

/// The records of one session as JSON lines in a file.
///
/// An idle journal holds no file descriptor and less than a kilobyte of memory, so that thousands can be open.
pub struct FileJournal {
    path: PathBuf,
    session: SessionId,
    clock: Arc<dyn Clock>,
    writer: Mutex<JournalWriter>,
    sync_state: Mutex<SyncState>,
    last: watch::Sender<u64>,
    growth: Option<Arc<GrowthTracker>>,
    growth_flag: GrowthFlag,
    storage: Option<Arc<StorageMeter>>,
    /// Counts of the records since they were taken.
    tally: Mutex<SessionTally>,
}

/// A journal with the result of opening it.
pub struct OpenedJournal {
    /// The journal, ready for appends.
    pub journal: FileJournal,
    /// Bytes of an incomplete last record that were cut off: the previous writer was killed.
    pub torn_bytes: u64,
}

#[derive(Default)]
struct SyncState {
    sequence: u64,
    /// Whether a sync failed. The kernel drops pages that it could not write, so a later success proves nothing.
    failed: bool,
    /// Whether the directory entry of the file is on disk.
    directory_synced: bool,
}

impl FileJournal {
    /// Opens the journal at `path`, or creates it.
    ///
    /// Reads and checks the records from the last offset in the index file to the end. To check every record, use
    /// [`crate::verify_journal`].
    pub fn open(
        path: impl Into<PathBuf>,
        session: SessionId,
        clock: Arc<dyn Clock>,
    ) -> Result<OpenedJournal, JournalError> {
        let path = path.into();
        let (writer, torn_bytes) = JournalWriter::open(&path, &session)?;
        Ok(OpenedJournal { journal: Self::with(path, session, clock, writer), torn_bytes })
    }

    /// Creates the journal of a new session, in a file of `pool` if the pool has one.
    pub fn create(
        path: impl Into<PathBuf>,
        session: SessionId,
        clock: Arc<dyn Clock>,
        pool: &FilePool,
    ) -> Result<OpenedJournal, JournalError> {
        let path = path.into();
        match pool.take(&path) {
            Some(file) => {
                Ok(OpenedJournal { journal: Self::with(path, session, clock, JournalWriter::new(file)), torn_bytes: 0 })
            }
            None => Self::open(path, session, clock),
        }
    }

    fn with(path: PathBuf, session: SessionId, clock: Arc<dyn Clock>, writer: JournalWriter) -> Self {
        let last = watch::Sender::new(writer.position.sequence);
        let (writer, sync_state) = (Mutex::new(writer), Mutex::default());
        let (growth, growth_flag, storage) = (None, GrowthFlag::default(), None);
        let tally = Mutex::default();
        Self { path, session, clock, writer, sync_state, last, growth, growth_flag, storage, tally }
    }

    /// Reports every later record to `growth`.
    #[must_use]
    pub fn with_growth_tracker(self, growth: Arc<GrowthTracker>) -> Self {
        Self { growth: Some(growth), ..self }
    }

    /// Refuses records that `storage` does not admit.
    #[must_use]
    pub fn with_storage_meter(self, storage: Arc<StorageMeter>) -> Self {
        Self { storage: Some(storage), ..self }
    }

    /// Returns the meter of the session's disk space.
    pub fn storage(&self) -> Option<&Arc<StorageMeter>> {
        self.storage.as_ref()
    }

    /// Returns the counts of the records since the last call, or since the journal was opened.
    pub fn take_tally(&self) -> SessionTally {
        std::mem::take(&mut *lock(&self.tally))
    }

    /// Returns the bytes of all records.
    pub fn bytes(&self) -> u64 {
        lock(&self.writer).end
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether `session.ended` was recorded.
    pub fn is_ended(&self) -> bool {
        lock(&self.writer).position.ended
    }

    /// Closes the file until the next append; for a session that waits for its next turn.
    pub fn rest(&self) {
        lock(&self.writer).close_file();
    }
}

impl Journal for FileJournal {
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        let encoded = EncodedDrafts::new(drafts)?;
        let mut writer = lock(&self.writer);
        let mut batch = RecordBatch::new(writer.position, writer.prev, writer.take_buffer());
        let stored = batch.fill(&self.session, self.clock.now(), &encoded)?;
        if let Some(storage) = &self.storage {
            let needed = writer.end + batch.bytes().len() as u64;
            storage.admit_records(needed, drafts).map_err(JournalError::StorageLimit)?;
        }
        writer.write(&self.path, batch)?;
        {
            let mut tally = lock(&self.tally);
            for draft in drafts {
                tally.count(&draft.body);
            }
        }
        self.last.send_replace(writer.position.sequence);
        if let Some(growth) = &self.growth {
            growth.note(&self.session, &self.growth_flag);
        }
        Ok(stored)
    }

    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        let (file, start, end, last) = {
            let writer = lock(&self.writer);
            if writer.position.sequence <= sequence || limit == 0 {
                return Ok(Vec::new());
            }
            let start = writer.recent_offset(sequence + 1);
            (writer.open_for_reading(&self.path)?, start, writer.end, writer.position.sequence)
        };
        let region = FileRegion { file: &file, path: &self.path, session: Some(&self.session), end };
        let count = usize::try_from(last - sequence).unwrap_or(usize::MAX).min(limit);
        read_page(region, start, sequence + 1, count)
    }

    fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn sync(&self) -> Result<(), JournalError> {
        let wanted = lock(&self.writer).position.sequence;
        let mut sync_state = lock(&self.sync_state);
        // The thread that held the lock while this one waited may have synced these records as well.
        if wanted <= sync_state.sequence && !sync_state.failed {
            return Ok(());
        }
        let (file, covered) = {
            let mut writer = lock(&self.writer);
            (writer.file(&self.path)?, writer.position.sequence)
        };
        sync_state.sync_file(&file, &self.path)?;
        sync_state.sequence = covered;
        Ok(())
    }
}

impl SyncState {
    fn sync_file(&mut self, file: &std::fs::File, path: &Path) -> Result<(), JournalError> {
        if self.failed {
            let error = std::io::Error::other("an earlier sync failed; open the journal again to check its records");
            return Err(JournalError::io("sync", path)(error));
        }
        let mut outcome = file.sync_data();
        if let (Ok(()), false, Some(directory)) = (&outcome, self.directory_synced, path.parent()) {
            outcome = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
        }
        self.failed = outcome.is_err();
        self.directory_synced = outcome.is_ok();
        outcome.map_err(JournalError::io("sync", path))
    }
}
