//! The tasks of one attachment. None of them outlives it.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use base::{error_chain, lock};
use protocol::SessionId;
use tokio::task::JoinHandle;
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use crate::{call::BatchWriter, identity::GatewayIdentity, workers::Worker};

/// How long to wait for more records before a journal is synced. During a sync, appends to the journal may have to wait.
const SYNC_DELAY: Duration = Duration::from_millis(50);

/// The tasks of one attachment, and the worker that runs new ones.
#[derive(Clone)]
pub(crate) struct AttachmentTasks {
    shared: Arc<SharedTasks>,
    /// Kept here because a body can be dropped on a thread without a runtime.
    worker: Arc<Worker>,
}

/// The state that the tasks of one attachment share on all workers.
#[derive(Default)]
struct SharedTasks {
    tracker: TaskTracker,
    pending_syncs: PendingSyncs,
    closing: CancellationToken,
    abort: CancellationToken,
}

impl AttachmentTasks {
    pub(crate) fn new(worker: Arc<Worker>) -> Self {
        Self { shared: Arc::default(), worker }
    }

    /// Returns a handle to the same tasks that runs new ones on `worker`.
    pub(crate) fn on(&self, worker: Arc<Worker>) -> Self {
        Self { shared: self.shared.clone(), worker }
    }

    /// Cancelled when the attachment accepts no more requests.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.shared.closing
    }

    /// Cancelled when running calls must end and record the part that arrived.
    pub(crate) fn abort(&self) -> &CancellationToken {
        &self.shared.abort
    }

    /// Returns the writer of the worker.
    pub(crate) fn writer(&self) -> &Arc<BatchWriter> {
        &self.worker.writer
    }

    /// Starts a task on the worker. The task runs on when the handle is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.shared.tracker.spawn_on(task, &self.worker.runtime)
    }

    /// Runs `work`, which may wait for the disk, on a thread that serves no connections.
    pub(crate) fn spawn_blocking(&self, work: impl FnOnce() + Send + 'static) {
        self.shared.tracker.spawn_blocking_on(work, &self.worker.runtime);
    }

    /// Returns a token that keeps [`Self::finished`] waiting until dropped.
    pub(crate) fn token(&self) -> TaskTrackerToken {
        self.shared.tracker.token()
    }

    /// Schedules a sync of the session's journal to the disk and returns at once. Calls that end within
    /// [`SYNC_DELAY`] share one sync.
    pub(crate) fn schedule_sync(&self, identity: &Arc<GatewayIdentity>) {
        if !self.shared.pending_syncs.add(&identity.session) {
            return;
        }
        let (tasks, identity) = (self.clone(), identity.clone());
        self.spawn(async move {
            let _ = tasks.closing().run_until_cancelled(tokio::time::sleep(SYNC_DELAY)).await;
            let shared = tasks.shared.clone();
            tasks.spawn_blocking(move || {
                // Removed before the sync, because the sync does not cover later appends.
                shared.pending_syncs.remove(&identity.session);
                if let Err(error) = identity.journal.sync() {
                    let session = &identity.session;
                    tracing::error!(error = error_chain(&error), %session, "cannot sync the journal to the disk");
                }
            });
        });
    }

    /// Waits until every task has ended and every token is dropped.
    pub(crate) async fn finished(&self) {
        self.shared.tracker.close();
        self.shared.tracker.wait().await;
    }
}

/// The sessions whose journal will be synced soon.
#[derive(Debug, Default)]
struct PendingSyncs(Mutex<HashSet<SessionId>>);

impl PendingSyncs {
    /// Adds `session` and returns whether it was absent. If it was, the caller has to do the sync.
    fn add(&self, session: &SessionId) -> bool {
        let mut pending = lock(&self.0);
        !pending.contains(session) && pending.insert(session.clone())
    }

    fn remove(&self, session: &SessionId) {
        lock(&self.0).remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sync_is_pending_for_a_session_at_a_time() {
        let (pending, session) = (PendingSyncs::default(), SessionId::new("s1").unwrap());
        assert!(pending.add(&session));
        assert!(!pending.add(&session) && !pending.add(&session));
        pending.remove(&session);
        assert!(pending.add(&session), "the first sync has started");
    }
}
