//! The tasks of one attachment: none of them outlives it.

use std::{sync::Arc, time::Duration};

use store::LedgerOperation;
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use crate::{
    identity::GatewayIdentity,
    lanes::Lane,
    scribe::{Ended, NotOpened, Record, Seat, Written},
    syncs::Syncs,
};

/// Records of so long are written to the disk together: while it writes, whoever appends may have to wait for it.
const GATHER: Duration = Duration::from_millis(50);

/// Owns every task that works for one session, on one lane.
#[derive(Clone)]
pub(crate) struct Tasks {
    life: Arc<Life>,
    /// Kept, because a body can be dropped on a thread that has no runtime of its own.
    lane: Arc<Lane>,
}

/// `closing` says: take nothing new. `abort` says: record what there is and end now.
#[derive(Default)]
pub(crate) struct Life {
    tracker: TaskTracker,
    syncs: Syncs,
    pub(crate) closing: CancellationToken,
    pub(crate) abort: CancellationToken,
}

impl std::ops::Deref for Tasks {
    type Target = Life;

    fn deref(&self) -> &Life {
        &self.life
    }
}

impl Tasks {
    pub(crate) fn new(lane: Arc<Lane>) -> Self {
        Self { life: Arc::default(), lane }
    }

    /// The same, for what happens on another lane.
    pub(crate) fn on(&self, lane: Arc<Lane>) -> Self {
        Self { life: self.life.clone(), lane }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn_on(task, &self.lane.handle);
    }

    /// Runs `work`, which may wait for the disk, where it delays no connection.
    pub(crate) fn spawn_blocking(&self, work: impl FnOnce() + Send + 'static) {
        self.tracker.spawn_blocking_on(work, &self.lane.handle);
    }

    /// Counts a call in, until its seat is dropped.
    pub(crate) fn seat(&self) -> Seat {
        self.lane.scribe.seat()
    }

    /// Takes the first step of a call, and then records it.
    pub(crate) async fn open(&self, step: LedgerOperation, record: Option<Record>) -> Result<(), NotOpened> {
        self.lane.scribe.open(step, record).await
    }

    /// Appends to a journal.
    pub(crate) async fn append(&self, record: Record) -> Written {
        self.lane.scribe.append(record).await
    }

    /// Records a call that is over, and then ends it in the ledger.
    pub(crate) fn end(&self, ended: Ended) {
        self.lane.scribe.end(ended);
    }

    /// Nothing ends before this is dropped.
    pub(crate) fn token(&self) -> TaskTrackerToken {
        self.tracker.token()
    }

    /// Has the journal of `identity` written to the disk, a moment after this returns.
    pub(crate) fn sync(&self, identity: &Arc<GatewayIdentity>) {
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
