//! Where sessions are kept: the index and the journals of one data directory.
//!
//! A journal is opened once and shared by everybody who reads or writes it, so that a reader that was
//! there before the session woke up hears it wake.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use base::lock;
use gateway::BodyStore;
use protocol::{Event, SessionId};
use store::{
    Clock, DataDir, DatabaseError, DiskReserve, DriftRecord, FileBodyStore, FileJournal, FilePool, GrowthTracker,
    IdempotencyStore, Journal, JournalError, JournalReader, NewSession, OpenedJournal, ProcessOwner, SessionIndex,
    SessionPatch, SessionRecord,
};

use crate::SessionError;
use crate::late::Late;

/// Where sessions are kept.
pub(crate) struct Shelf {
    directory: DataDir,
    clock: Arc<dyn Clock>,
    pub(crate) index: SessionIndex,
    pub(crate) owner: ProcessOwner,
    /// Hears which journals of this process have grown.
    pub(crate) growth: Arc<GrowthTracker>,
    open: Mutex<Journals>,
    /// Files for the journals of sessions to come.
    spares: Arc<FilePool>,
    /// One session is taken in at a time.
    taking_in: Mutex<()>,
    /// Whether the list of sessions is about to be brought to the disk.
    settling: Arc<AtomicBool>,
    /// What the list could not be told yet.
    pub(crate) late: Late,
    reserve: DiskReserve,
}

/// How long a new session may wait for the disk, beside everything else.
const SETTLE_AFTER: Duration = Duration::from_millis(50);

/// The journals that somebody in this process has open.
#[derive(Default)]
struct Journals {
    by_id: HashMap<SessionId, Weak<FileJournal>>,
    /// How many there were when those nobody holds any more were last looked for.
    swept: usize,
}

impl Journals {
    fn get(&self, id: &SessionId) -> Option<Arc<FileJournal>> {
        self.by_id.get(id).and_then(Weak::upgrade)
    }

    fn insert(&mut self, id: SessionId, journal: &Arc<FileJournal>) {
        // Looked for when there are twice as many: of ten thousand, not each time all of them.
        if self.by_id.len() > 2 * self.swept {
            self.by_id.retain(|_, journal| journal.strong_count() > 0);
            self.swept = self.by_id.len();
        }
        self.by_id.insert(id, Arc::downgrade(journal));
    }

    fn remove(&mut self, id: &SessionId) {
        self.by_id.remove(id);
    }
}

impl Shelf {
    pub(crate) fn open(directory: DataDir, clock: Arc<dyn Clock>) -> Result<Self, SessionError> {
        let index = SessionIndex::open(&directory, clock.clone())?;
        let owner = ProcessOwner::claim(&directory)?;
        let spares = Arc::new(FilePool::new(directory.journal_dir()));
        let reserve = DiskReserve::new(directory.reserve());
        Ok(Self {
            spares,
            directory,
            clock,
            index,
            owner,
            growth: Arc::default(),
            open: Mutex::default(),
            taking_in: Mutex::default(),
            settling: Arc::default(),
            late: Late::default(),
            reserve,
        })
    }

    /// Seconds since 1970.
    pub(crate) fn now_unix_secs(&self) -> u64 {
        u64::try_from(self.clock.now().as_second()).unwrap_or(0)
    }

    /// Where everything is.
    pub(crate) fn directory(&self) -> &DataDir {
        &self.directory
    }

    /// The requests that callers have named.
    pub(crate) fn requests(&self) -> Result<IdempotencyStore, DatabaseError> {
        IdempotencyStore::open(&self.directory, self.clock.clone())
    }

    /// Enters a new session; of two who enter the same id, here or in another process, one succeeds.
    ///
    /// It goes into the page cache, which takes less than to wake another thread for it, and soon to the disk.
    pub(crate) fn enter(&self, new: &NewSession) -> Result<(Arc<FileJournal>, SessionRecord), SessionError> {
        let record = self.index.create(new)?;
        self.settle_soon();
        let id = &record.info.session_id;
        // What an import that was killed has left is none of this session.
        gone(std::fs::remove_dir_all(self.directory.imported(id))).inspect_err(|_| self.unmake(id))?;
        let begun = self.open_by(id, |path| FileJournal::create(path, id.clone(), self.clock.clone(), &self.spares));
        self.keep_spares();
        let (journal, _) = begun.inspect_err(|_| self.unmake(id))?;
        Ok((journal, record))
    }

    /// Takes back that a session was entered which nobody was told of. Where the disk is so full that the list cannot be
    /// written, its row stays; [`Self::was_unmade`] knows it.
    pub(crate) fn unmake(&self, id: &SessionId) {
        lock(&self.open).remove(id);
        let journal = self.directory.journal(id);
        for file in [journal.with_extension("idx"), journal] {
            if let Err(error) = gone(std::fs::remove_file(file)) {
                tracing::warn!(session = %id, %error, "something is left of a session that was not made");
            }
        }
        if let Err(error) = self.index.remove_unrecorded(id, self.owner.id()) {
            tracing::warn!(session = %id, %error, "a session that was not made stays in the list for now");
        }
    }

    /// Whether a session of this process was taken back and only its row is left.
    pub(crate) fn was_unmade(&self, record: &SessionRecord) -> bool {
        let ours = record.owner == *self.owner.id() && record.outcome.is_none() && record.info.event_count == 0;
        ours && !self.directory.journal(&record.info.session_id).exists()
    }

    /// Held by whoever takes in a session: its journal is there before its entry.
    pub(crate) fn take_in_alone(&self) -> std::sync::MutexGuard<'_, ()> {
        lock(&self.taking_in)
    }

    /// What to tell who wants an id that is used, or was.
    pub(crate) fn taken(&self, id: SessionId) -> SessionError {
        if self.index.get(&id).is_ok() { SessionError::AlreadyExists(id) } else { SessionError::IdUsed(id) }
    }

    /// Makes files for sessions to come, beside everything else, when few are left.
    pub(crate) fn keep_spares(&self) {
        if self.spares.should_fill() {
            let spares = self.spares.clone();
            tokio::task::spawn_blocking(move || spares.fill());
        }
    }

    /// Brings the list of sessions to the disk, once for all that were entered meanwhile.
    fn settle_soon(&self) {
        if self.settling.swap(true, Ordering::SeqCst) {
            return;
        }
        // Holds nothing of the sessions: whoever closes them waits for none of this.
        let (settle, settling) = (self.index.sync_handle(), self.settling.clone());
        tokio::spawn(async move {
            tokio::time::sleep(SETTLE_AFTER).await;
            // Who enters from here on asks again.
            settling.store(false, Ordering::SeqCst);
            let settled = blocking(move || Ok(settle()?)).await;
            if let Err(error) = settled {
                tracing::error!(%error, "sessions made just now may not survive the power");
            }
        });
    }

    /// The journal of `id`, and how many torn bytes were cut if this opened it.
    pub(crate) fn journal(&self, id: &SessionId) -> Result<(Arc<FileJournal>, u64), SessionError> {
        self.open_by(id, |path| FileJournal::open(path, id.clone(), self.clock.clone()))
    }

    fn open_by(
        &self,
        id: &SessionId,
        open_it: impl FnOnce(PathBuf) -> Result<OpenedJournal, JournalError>,
    ) -> Result<(Arc<FileJournal>, u64), SessionError> {
        let mut open = lock(&self.open);
        if let Some(journal) = open.get(id) {
            return Ok((journal, 0));
        }
        let opened = open_it(self.directory.journal(id))?;
        let journal = Arc::new(opened.journal.with_growth_tracker(self.growth.clone()));
        open.insert(id.clone(), &journal);
        Ok((journal, opened.torn_bytes))
    }

    /// Puts the journal of `id` aside, as it is; where it is then.
    pub(crate) fn quarantine(&self, id: &SessionId) -> Result<PathBuf, SessionError> {
        use std::os::unix::fs::DirBuilderExt as _;

        lock(&self.open).remove(id);
        let journal = self.directory.journal(id);
        let mut numbers = 0..;
        let aside = numbers
            .find_map(|number| Some(self.directory.quarantined_journal(id, number)).filter(|path| !path.exists()));
        let aside = aside.unwrap_or_else(|| self.directory.quarantined_journal(id, u32::MAX));
        let folder = aside.parent().unwrap_or(&aside);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.and_then(|()| std::fs::rename(&journal, &aside)).map_err(SessionError::Changes)?;
        gone(std::fs::remove_file(journal.with_extension("idx")))?;
        Ok(aside)
    }

    /// The journal of a session that another process runs, or ran.
    pub(crate) fn reader(&self, id: &SessionId) -> Result<JournalReader, SessionError> {
        Ok(JournalReader::open(self.directory.journal(id), id.clone())?)
    }

    /// Number of the last event of a session, whoever runs it.
    pub(crate) fn last_event(&self, id: &SessionId) -> Result<u64, JournalError> {
        match self.held(id) {
            Some(journal) => Ok(last(&*journal)),
            None => JournalReader::open(self.directory.journal(id), id.clone())?.last(),
        }
    }

    /// At most `limit` events of a session behind `sequence`, whoever runs it.
    pub(crate) fn events(&self, id: &SessionId, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        match self.held(id) {
            Some(journal) => journal.after(sequence, limit),
            None => JournalReader::open(self.directory.journal(id), id.clone())?.after(sequence, limit),
        }
    }

    /// The journal of `id` if somebody in this process has it open.
    fn held(&self, id: &SessionId) -> Option<Arc<FileJournal>> {
        lock(&self.open).get(id)
    }

    /// Raises the epoch of a session that is ours, so that the ids of its next agent are new ones.
    pub(crate) async fn raise_epoch(self: &Arc<Self>, id: &SessionId) -> Result<SessionRecord, SessionError> {
        let (this, id) = (self.clone(), id.clone());
        blocking(move || {
            let record = this.index.get(&id)?;
            Ok(this.index.adopt(&record, this.owner.id())?)
        })
        .await
    }

    /// Notes that a session has ended, which its journal says already: where the list cannot be written it is told later.
    pub(crate) fn note_end(&self, id: &SessionId, change: SessionPatch) {
        if let Err(error) = self.index.update(id, &change) {
            tracing::error!(session = %id, %error, "the list of sessions does not know yet that one has ended");
            self.late.remember(id, change);
        }
    }

    pub(crate) async fn update(self: &Arc<Self>, id: &SessionId, change: SessionPatch) -> Result<(), SessionError> {
        let (this, id) = (self.clone(), id.clone());
        blocking(move || {
            this.index.update(&id, &change)?;
            Ok(())
        })
        .await
    }

    /// Keeps the list of sessions up to date. The journal holds the truth, so a failure costs a stale row.
    pub(crate) fn note_now(&self, id: &SessionId, change: &SessionPatch) {
        if let Err(error) = self.index.update_unsynced(id, change) {
            tracing::warn!(session = %id, %error, "cannot bring the sessions index up to date");
        }
    }

    /// Counts what was not understood of an agent. The journal holds the truth, so a failure costs a count.
    pub(crate) fn count_drift(&self, drift: &DriftRecord) {
        if let Err(error) = self.index.count_drift(drift) {
            tracing::warn!(agent = drift.agent, %error, "cannot count what was not understood");
        }
    }

    /// Puts what an earlier sandbox of a session changed aside.
    pub(crate) async fn set_changes_aside(self: &Arc<Self>, id: &SessionId, epoch: u32) -> Result<(), SessionError> {
        let (from, to) = (self.directory.change_set(id), self.directory.earlier_change_set(id, epoch));
        blocking(move || {
            if !from.exists() {
                return Ok(());
            }
            let parent = to.parent().map_or(Ok(()), std::fs::create_dir_all);
            parent.and_then(|()| std::fs::rename(from, to)).map_err(SessionError::Changes)
        })
        .await
    }

    /// Where the changes of a session's workspace are kept.
    pub(crate) fn changes(&self, id: &SessionId) -> PathBuf {
        self.directory.change_set(id)
    }

    /// Where the memory of a session's agent is kept.
    pub(crate) fn memory(&self, id: &SessionId) -> PathBuf {
        self.directory.agent_state(id)
    }

    pub(crate) fn bodies(&self, compress: bool) -> Arc<dyn BodyStore> {
        Arc::new(FileBodyStore::new(&self.directory).with_compression(compress))
    }

    /// Drops everything a session that has ended left, but for what it cost; whether it was there.
    pub(crate) async fn delete(self: &Arc<Self>, id: &SessionId) -> Result<bool, SessionError> {
        let (this, id) = (self.clone(), id.clone());
        blocking(move || {
            // The list first: files that stay behind after a crash are nobody's, a row without files would be a lie.
            let was_there = match this.index.delete(&id) {
                Err(error) if store::is_disk_full(&error) => this.reserve.release_during(|| this.index.delete(&id))?,
                deleted => deleted?,
            };
            if was_there {
                this.delete_files(&id)?;
            }
            Ok(was_there)
        })
        .await
    }

    fn delete_files(&self, id: &SessionId) -> Result<(), SessionError> {
        lock(&self.open).remove(id);
        let directory = &self.directory;
        let journal = directory.journal(id);
        for file in [journal.with_extension("idx"), journal, directory.agent_state(id), directory.workspace_origin(id)]
        {
            gone(std::fs::remove_file(file))?;
        }
        for folder in [directory.change_set(id), directory.earlier_change_sets(id), directory.imported(id)] {
            gone(std::fs::remove_dir_all(folder))?;
        }
        Ok(())
    }

    /// Gives a session that is being forked a memory of its own.
    pub(crate) async fn copy_memory(self: &Arc<Self>, from: &SessionId, to: &SessionId) -> Result<(), SessionError> {
        let (from, to) = (self.directory.agent_state(from), self.directory.agent_state(to));
        blocking(move || {
            gone(std::fs::copy(from, &to).map(drop)).inspect_err(|_| {
                // Half a memory is worse than none.
                let _ = std::fs::remove_file(to);
            })
        })
        .await
    }
}

/// What was not there need not be removed or copied.
fn gone(outcome: std::io::Result<()>) -> Result<(), SessionError> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(SessionError::Changes(error)),
        _ => Ok(()),
    }
}

/// Runs what waits for the disk on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SessionError> + Send + 'static,
) -> Result<T, SessionError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(SessionError::ShuttingDown))
}

/// Number of the last event of a journal.
pub(crate) fn last(journal: &dyn Journal) -> u64 {
    *journal.last().borrow()
}
