//! The tasks of one attachment: none of them outlives it.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{identity::Identity, syncs::Syncs};

/// Records of so long are written to the disk together: while it writes, whoever appends may have to wait for it.
const GATHER: Duration = Duration::from_millis(50);

/// Owns every task that works for one session.
///
/// `closing` says: take nothing new. `abort` says: record what there is and end now.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    /// Kept, because a body can be dropped on a thread that has no runtime of its own.
    handle: Handle,
    syncs: Syncs,
    pub(crate) closing: CancellationToken,
    pub(crate) abort: CancellationToken,
}

impl Tasks {
    pub(crate) fn new(handle: Handle) -> Self {
        let closing = CancellationToken::new();
        Self { tracker: TaskTracker::new(), handle, syncs: Syncs::default(), closing, abort: CancellationToken::new() }
    }

    /// The same, for what happens on another lane.
    pub(crate) fn on(&self, handle: Handle) -> Self {
        Self { handle, ..self.clone() }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn_on(task, &self.handle);
    }

    /// Runs `work`, which may wait for the disk, where it delays no connection.
    pub(crate) fn spawn_blocking(&self, work: impl FnOnce() + Send + 'static) {
        self.tracker.spawn_blocking_on(work, &self.handle);
    }

    /// Has the journal of `identity` written to the disk, a moment after this returns.
    pub(crate) fn sync(&self, identity: &Arc<Identity>) {
        if !self.syncs.ask(&identity.session) {
            return;
        }
        let (tasks, identity) = (self.clone(), identity.clone());
        self.spawn(async move {
            let pause = tokio::time::sleep(GATHER);
            let _ = tasks.closing.run_until_cancelled(pause).await;
            let syncs = tasks.syncs.clone();
            tasks.spawn_blocking(move || syncs.write_out(&identity.session, &*identity.journal));
        });
    }

    /// Returns when every task has ended.
    pub(crate) async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
