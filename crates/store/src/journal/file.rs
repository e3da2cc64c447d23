//! The journal of one session in one file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::lock;
use protocol::{Event, EventDraft, SessionId};
use tokio::sync::watch;

use super::reader::read_page;
use super::script::Script;
use super::sheet::Sheet;
use super::walk::Region;
use super::writer::Writer;
use super::{FilePool, Journal, JournalError, StoredRange};
use crate::Clock;
use crate::feed::{GrowthTracker, Mark};

/// One session's records as JSON lines.
///
/// At rest it holds no descriptor and well under a kilobyte, so that thousands can be open.
pub struct FileJournal {
    path: PathBuf,
    session: SessionId,
    clock: Arc<dyn Clock>,
    writer: Mutex<Writer>,
    synced: Mutex<Synced>,
    last: watch::Sender<u64>,
    /// Who is told that this one has grown, and whether that was done.
    growth: Option<Arc<GrowthTracker>>,
    mark: Mark,
}

/// A journal, and what was found when it was opened.
pub struct OpenedJournal {
    /// Ready to append.
    pub journal: FileJournal,
    /// Bytes of a half-written last record that were cut: the writer before was killed.
    pub torn_bytes: u64,
}

#[derive(Default)]
struct Synced {
    sequence: u64,
    /// The kernel forgets what it could not write: after one failure a later success proves nothing.
    failed: bool,
    /// The file's name is on disk too.
    named: bool,
}

impl FileJournal {
    /// Opens the journal at `path`, or makes it. Reads from the last mark of the sidecar to the end, not the
    /// whole; [`crate::verify`] does that.
    pub fn open(
        path: impl Into<PathBuf>,
        session: SessionId,
        clock: Arc<dyn Clock>,
    ) -> Result<OpenedJournal, JournalError> {
        let path = path.into();
        let (writer, torn_bytes) = Writer::open(&path, &session)?;
        Ok(OpenedJournal { journal: Self::with(path, session, clock, writer), torn_bytes })
    }

    /// The same for a session that is new: in one of `spares`, where there is one.
    pub fn create(
        path: impl Into<PathBuf>,
        session: SessionId,
        clock: Arc<dyn Clock>,
        spares: &FilePool,
    ) -> Result<OpenedJournal, JournalError> {
        let path = path.into();
        match spares.take(&path) {
            Some(file) => {
                Ok(OpenedJournal { journal: Self::with(path, session, clock, Writer::new(file)), torn_bytes: 0 })
            }
            None => Self::open(path, session, clock),
        }
    }

    fn with(path: PathBuf, session: SessionId, clock: Arc<dyn Clock>, writer: Writer) -> Self {
        let last = watch::Sender::new(writer.stamp.sequence);
        let (writer, synced) = (Mutex::new(writer), Mutex::default());
        let (growth, mark) = (None, Mark::default());
        Self { path, session, clock, writer, synced, last, growth, mark }
    }

    /// Tells `growth` of each record from now on.
    #[must_use]
    pub fn with_growth_tracker(self, growth: Arc<GrowthTracker>) -> Self {
        Self { growth: Some(growth), ..self }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `session.ended` was recorded.
    pub fn is_ended(&self) -> bool {
        lock(&self.writer).stamp.ended
    }

    /// Closes the file until it is needed again; for a session that waits for its next turn.
    pub fn rest(&self) {
        lock(&self.writer).rest();
    }
}

impl Journal for FileJournal {
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        let script = Script::of(drafts)?;
        let mut writer = lock(&self.writer);
        let mut sheet = Sheet::new(writer.stamp, writer.prev, writer.take_room());
        let stored = sheet.fill(&self.session, self.clock.now(), &script)?;
        writer.write(&self.path, sheet)?;
        self.last.send_replace(writer.stamp.sequence);
        if let Some(growth) = &self.growth {
            growth.note(&self.session, &self.mark);
        }
        Ok(stored)
    }

    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        let (file, start, end, last) = {
            let writer = lock(&self.writer);
            if writer.stamp.sequence <= sequence || limit == 0 {
                return Ok(Vec::new());
            }
            let start = writer.recent(sequence + 1);
            (writer.reading(&self.path)?, start, writer.end, writer.stamp.sequence)
        };
        let region = Region { file: &file, path: &self.path, session: Some(&self.session), end };
        let count = usize::try_from(last - sequence).unwrap_or(usize::MAX).min(limit);
        read_page(region, start, sequence + 1, count)
    }

    fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn sync(&self) -> Result<(), JournalError> {
        let wanted = lock(&self.writer).stamp.sequence;
        let mut synced = lock(&self.synced);
        // Whoever held the lock while we waited may have synced our records with its own.
        if wanted <= synced.sequence && !synced.failed {
            return Ok(());
        }
        let (file, covered) = {
            let mut writer = lock(&self.writer);
            (writer.file(&self.path)?, writer.stamp.sequence)
        };
        synced.write_out(&file, &self.path)?;
        synced.sequence = covered;
        Ok(())
    }
}

impl Synced {
    fn write_out(&mut self, file: &std::fs::File, path: &Path) -> Result<(), JournalError> {
        if self.failed {
            let error = std::io::Error::other("an earlier sync failed; open the journal again to see what is there");
            return Err(JournalError::io("sync", path)(error));
        }
        let mut outcome = file.sync_data();
        if let (Ok(()), false, Some(directory)) = (&outcome, self.named, path.parent()) {
            outcome = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
        }
        self.failed = outcome.is_err();
        self.named = outcome.is_ok();
        outcome.map_err(JournalError::io("sync", path))
    }
}
