//! The session store: the index and the journals of one data directory.
//!
//! A journal is opened once and shared by all readers and the writer, so that a reader that was there before the
//! session resumed also sees its new events.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use base::lock;
use protocol::{Event, SessionId};
use store::{
    Clock, DataDir, DatabaseError, DiskReserve, DriftRecord, FileJournal, FilePool, GrowthTracker, IdempotencyStore,
    Journal, JournalError, JournalReader, NewSession, OpenedJournal, ProcessOwner, SessionIndex, SessionPatch,
    SessionRecord, StorageLimits, StorageMeter,
};
use tokio_util::task::TaskTracker;

use crate::SessionError;
use crate::storage::PendingIndexUpdates;

/// The index and the journals of one data directory.
pub(crate) struct SessionStore {
    directory: DataDir,
    clock: Arc<dyn Clock>,
    /// The disk space of each session.
    pub(super) storage: StorageLimits,
    pub(crate) index: SessionIndex,
    pub(crate) owner: ProcessOwner,
    /// Tracks which journals of this process have grown, for the global feed.
    pub(crate) growth: Arc<GrowthTracker>,
    open: Mutex<OpenJournals>,
    /// Preallocated files for the journals of new sessions.
    spares: Arc<FilePool>,
    /// Held during an import, so that one session is imported at a time.
    import_lock: Mutex<()>,
    /// Whether an fsync of the index is scheduled.
    index_sync_scheduled: Arc<AtomicBool>,
    /// Index updates that failed because the disk was full.
    pub(crate) pending_updates: PendingIndexUpdates,
    reserve: DiskReserve,
    /// Background work on files. Closing the host does not wait for it.
    tasks: TaskTracker,
}

/// Delay of the index fsync after a session was created, so that one fsync covers several sessions.
const INDEX_SYNC_DELAY: Duration = Duration::from_millis(50);

/// The journals that are open in this process.
#[derive(Default)]
struct OpenJournals {
    by_id: HashMap<SessionId, Weak<FileJournal>>,
    /// Number of entries after the last removal of closed journals.
    swept: usize,
}

impl OpenJournals {
    fn get(&self, id: &SessionId) -> Option<Arc<FileJournal>> {
        self.by_id.get(id).and_then(Weak::upgrade)
    }

    fn insert(&mut self, id: SessionId, journal: &Arc<FileJournal>) {
        // Closed journals are removed when the map has doubled, not at every insert.
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

impl SessionStore {
    pub(crate) fn open(
        directory: DataDir,
        clock: Arc<dyn Clock>,
        storage: StorageLimits,
    ) -> Result<Self, SessionError> {
        let index = SessionIndex::open(&directory, clock.clone())?;
        let owner = ProcessOwner::claim(&directory)?;
        let spares = Arc::new(FilePool::new(directory.journal_dir()));
        let reserve = DiskReserve::new(directory.reserve());
        Ok(Self {
            spares,
            directory,
            clock,
            storage,
            index,
            owner,
            growth: Arc::default(),
            open: Mutex::default(),
            import_lock: Mutex::default(),
            index_sync_scheduled: Arc::default(),
            pending_updates: PendingIndexUpdates::default(),
            reserve,
            tasks: TaskTracker::new(),
        })
    }

    /// Returns the seconds since 1970.
    pub(crate) fn now_unix_secs(&self) -> u64 {
        u64::try_from(self.clock.now().as_second()).unwrap_or(0)
    }

    /// Returns the milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// Returns the data directory.
    pub(crate) fn directory(&self) -> &DataDir {
        &self.directory
    }

    /// Opens the store of idempotency keys.
    pub(crate) fn idempotency_store(&self) -> Result<IdempotencyStore, DatabaseError> {
        IdempotencyStore::open(&self.directory, self.clock.clone())
    }

    /// Registers a new session and creates its journal. Of concurrent calls with the same id, in any process, one
    /// succeeds.
    ///
    /// Runs on this thread: the writes go to the page cache, which is cheaper than waking another thread.
    pub(crate) fn register(&self, new: &NewSession) -> Result<(Arc<FileJournal>, SessionRecord), SessionError> {
        let record = self.index.create(new)?;
        self.sync_index_soon();
        let id = &record.info.session_id;
        // An import that was killed may have left files under the same id.
        ignore_not_found(std::fs::remove_dir_all(self.directory.imported(id)))
            .inspect_err(|_| self.undo_register(id))?;
        let created =
            self.open_with(id, |path| FileJournal::create(path, id.clone(), self.clock.clone(), &self.spares));
        self.refill_spare_files();
        let (journal, _) = created.inspect_err(|_| self.undo_register(id))?;
        Ok((journal, record))
    }

    /// Removes a session that no client has seen. If the disk is too full to write the index, its row stays, and
    /// [`Self::was_undone`] recognizes it.
    pub(crate) fn undo_register(&self, id: &SessionId) {
        lock(&self.open).remove(id);
        let journal = self.directory.journal(id);
        for file in [journal.with_extension("idx"), journal] {
            if let Err(error) = ignore_not_found(std::fs::remove_file(file)) {
                tracing::warn!(session = %id, %error, "cannot remove a file of a session that was not created");
            }
        }
        if let Err(error) = self.index.remove_unrecorded(id, self.owner.id()) {
            tracing::warn!(session = %id, %error, "cannot remove the index row of a session that was not created");
        }
    }

    /// Returns whether `record` is a row that [`Self::undo_register`] could not remove.
    pub(crate) fn was_undone(&self, record: &SessionRecord) -> bool {
        let ours = record.owner == *self.owner.id() && record.outcome.is_none() && record.info.event_count == 0;
        ours && !self.directory.journal(&record.info.session_id).exists()
    }

    /// Locks imports: the journal of an imported session exists before its index row.
    pub(crate) fn lock_imports(&self) -> std::sync::MutexGuard<'_, ()> {
        lock(&self.import_lock)
    }

    /// Returns the error for an id that is used by a session, or was used by a deleted one.
    pub(crate) fn id_used_error(&self, id: SessionId) -> SessionError {
        if self.index.get(&id).is_ok() { SessionError::AlreadyExists(id) } else { SessionError::IdUsed(id) }
    }

    /// Preallocates journal files in the background when few are left.
    pub(crate) fn refill_spare_files(&self) {
        if self.spares.should_fill() {
            let spares = self.spares.clone();
            self.tasks.spawn_blocking(move || spares.fill());
        }
    }

    /// Brings the list of sessions to the disk, once for all that were entered meanwhile.
    fn sync_index_soon(&self) {
        if self.index_sync_scheduled.swap(true, Ordering::SeqCst) {
            return;
        }
        let (sync, scheduled) = (self.index.sync_handle(), self.index_sync_scheduled.clone());
        self.tasks.spawn(async move {
            tokio::time::sleep(INDEX_SYNC_DELAY).await;
            // Sessions that are created from here on schedule the next fsync.
            scheduled.store(false, Ordering::SeqCst);
            let synced = run_blocking(move || Ok(sync()?)).await;
            if let Err(error) = synced {
                tracing::error!(%error, "cannot fsync the session index; a power failure may lose new sessions");
            }
        });
    }

    /// Returns the journal of `id`, and the number of torn bytes that were cut when this call opened it.
    pub(crate) fn journal(&self, id: &SessionId) -> Result<(Arc<FileJournal>, u64), SessionError> {
        self.open_with(id, |path| FileJournal::open(path, id.clone(), self.clock.clone()))
    }

    fn open_with(
        &self,
        id: &SessionId,
        open_file: impl FnOnce(PathBuf) -> Result<OpenedJournal, JournalError>,
    ) -> Result<(Arc<FileJournal>, u64), SessionError> {
        let mut open = lock(&self.open);
        if let Some(journal) = open.get(id) {
            return Ok((journal, 0));
        }
        let opened = open_file(self.directory.journal(id))?;
        let storage = Arc::new(StorageMeter::new(self.directory.root().to_owned(), self.storage));
        let journal = opened.journal.with_growth_tracker(self.growth.clone()).with_storage_meter(storage);
        let journal = Arc::new(journal);
        open.insert(id.clone(), &journal);
        Ok((journal, opened.torn_bytes))
    }

    /// Moves the journal of `id` unchanged to the quarantine folder. Returns its new path.
    pub(crate) fn quarantine(&self, id: &SessionId) -> Result<PathBuf, SessionError> {
        use std::os::unix::fs::DirBuilderExt as _;

        lock(&self.open).remove(id);
        let journal = self.directory.journal(id);
        let mut numbers = 0..;
        let target = numbers
            .find_map(|number| Some(self.directory.quarantined_journal(id, number)).filter(|path| !path.exists()));
        let target = target.unwrap_or_else(|| self.directory.quarantined_journal(id, u32::MAX));
        let folder = target.parent().unwrap_or(&target);
        let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.and_then(|()| std::fs::rename(&journal, &target)).map_err(SessionError::Changes)?;
        ignore_not_found(std::fs::remove_file(journal.with_extension("idx")))?;
        Ok(target)
    }

    /// Returns a reader of a journal that another process writes or wrote.
    pub(crate) fn reader(&self, id: &SessionId) -> Result<JournalReader, SessionError> {
        Ok(JournalReader::open(self.directory.journal(id), id.clone())?)
    }

    /// Returns the sequence number of the last event of a session, in any process.
    pub(crate) fn last_event(&self, id: &SessionId) -> Result<u64, JournalError> {
        match self.open_journal(id) {
            Some(journal) => Ok(last_sequence(&*journal)),
            None => JournalReader::open(self.directory.journal(id), id.clone())?.last(),
        }
    }

    /// Returns at most `limit` events of a session after `sequence`, in any process.
    pub(crate) fn events(&self, id: &SessionId, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        match self.open_journal(id) {
            Some(journal) => journal.after(sequence, limit),
            None => JournalReader::open(self.directory.journal(id), id.clone())?.after(sequence, limit),
        }
    }

    /// Returns the journal of `id` if this process has it open.
    fn open_journal(&self, id: &SessionId) -> Option<Arc<FileJournal>> {
        lock(&self.open).get(id)
    }

    /// Increments the epoch of a session of this process, so that ids of the next agent start are new.
    pub(crate) async fn raise_epoch(self: &Arc<Self>, id: &SessionId) -> Result<SessionRecord, SessionError> {
        let (this, id) = (self.clone(), id.clone());
        run_blocking(move || {
            let record = this.index.get(&id)?;
            Ok(this.index.adopt(&record, this.owner.id())?)
        })
        .await
    }

    /// Writes the end of a session to the index. If that fails, the update is kept in memory and retried.
    pub(crate) fn record_end(&self, id: &SessionId, patch: SessionPatch) {
        if let Err(error) = self.index.update(id, &patch) {
            tracing::error!(session = %id, %error, "cannot write the end of the session to the index; retrying later");
            self.pending_updates.add(id, patch);
        }
    }

    /// Updates the index row of a session.
    pub(crate) async fn update(self: &Arc<Self>, id: &SessionId, patch: SessionPatch) -> Result<(), SessionError> {
        let (this, id) = (self.clone(), id.clone());
        run_blocking(move || {
            this.index.update(&id, &patch)?;
            Ok(())
        })
        .await
    }

    /// Updates the index row of a session. A failure is only logged, because the journal is the truth.
    pub(crate) fn update_index(&self, id: &SessionId, patch: &SessionPatch) {
        if let Err(error) = self.index.update_unsynced(id, patch) {
            tracing::warn!(session = %id, %error, "cannot update the session index");
        }
    }

    /// Adds to the drift counts of an agent. A failure is only logged.
    pub(crate) fn count_drift(&self, drift: &DriftRecord) {
        if let Err(error) = self.index.count_drift(drift) {
            tracing::warn!(agent = drift.agent, %error, "cannot update the drift counts");
        }
    }

    /// Moves the saved changes of an earlier sandbox aside.
    pub(crate) async fn move_changes_aside(self: &Arc<Self>, id: &SessionId, epoch: u32) -> Result<(), SessionError> {
        let (from, to) = (self.directory.change_set(id), self.directory.earlier_change_set(id, epoch));
        run_blocking(move || {
            if !from.exists() {
                return Ok(());
            }
            let parent = to.parent().map_or(Ok(()), std::fs::create_dir_all);
            parent.and_then(|()| std::fs::rename(from, to)).map_err(SessionError::Changes)
        })
        .await
    }

    /// Returns the folder of a session's saved changes.
    pub(crate) fn changes(&self, id: &SessionId) -> PathBuf {
        self.directory.change_set(id)
    }

    /// Returns the file of the agent's saved memory.
    pub(crate) fn memory(&self, id: &SessionId) -> PathBuf {
        self.directory.agent_state(id)
    }

    /// Deletes a session that has ended; its ledger entries stay. Returns whether the session existed.
    pub(crate) async fn delete(self: &Arc<Self>, id: &SessionId) -> Result<bool, SessionError> {
        let (this, id) = (self.clone(), id.clone());
        run_blocking(move || {
            // The row first: after a crash, files without a row are harmless, but a row without files would be wrong.
            let existed = match this.index.delete(&id) {
                Err(error) if store::is_disk_full(&error) => this.reserve.release_during(|| this.index.delete(&id))?,
                deleted => deleted?,
            };
            if existed {
                this.delete_files(&id)?;
            }
            Ok(existed)
        })
        .await
    }

    fn delete_files(&self, id: &SessionId) -> Result<(), SessionError> {
        lock(&self.open).remove(id);
        let directory = &self.directory;
        let journal = directory.journal(id);
        for file in [journal.with_extension("idx"), journal, directory.agent_state(id), directory.workspace_origin(id)]
        {
            ignore_not_found(std::fs::remove_file(file))?;
        }
        if let Err(error) = sandbox::remove_imported_commits(&directory.change_set(id)) {
            tracing::warn!(session = %id, error = %base::error_chain(&error), "cannot remove the references of the session's commits");
        }
        let changes = [directory.change_set(id), directory.earlier_change_sets(id)];
        for folder in changes.into_iter().chain([directory.imported(id), directory.screen_recordings(id)]) {
            ignore_not_found(std::fs::remove_dir_all(folder))?;
        }
        Ok(())
    }
}

/// Treats a missing file as success.
pub(super) fn ignore_not_found(outcome: std::io::Result<()>) -> Result<(), SessionError> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(SessionError::Changes(error)),
        _ => Ok(()),
    }
}

/// Runs `work` on a thread that may block. Fails when the runtime shuts down.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SessionError> + Send + 'static,
) -> Result<T, SessionError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(SessionError::ShuttingDown))
}

/// Returns the sequence number of the last event of a journal.
pub(crate) fn last_sequence(journal: &dyn Journal) -> u64 {
    *journal.last().borrow()
}
