//! The queue of calls that wait for money that other calls hold.
//!
//! A budget that is only held becomes free when the calls that hold it are settled. So a call that does not fit waits for
//! a short time before it is refused. The calls of one session wait in the order of their arrival.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use base::lock;
use protocol::SessionId;
use store::{LimitAmount, LimitExceeded, LimitWindow};
use tokio::{
    sync::{Mutex as FairMutex, Notify, OwnedMutexGuard},
    time::Instant,
};

/// How often the ledger is asked again without a notice: other processes free money as well.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The calls of a host that wait for money.
#[derive(Debug, Default)]
pub(crate) struct HoldQueue {
    /// The number of calls that wait. Most of the time there is none.
    waiting: AtomicUsize,
    lines: Mutex<HashMap<SessionId, Arc<FairMutex<()>>>>,
    freed: Notify,
}

/// The place of one call in the queue.
pub(super) struct QueuePlace<'q> {
    queue: &'q HoldQueue,
    session: SessionId,
    deadline: Instant,
    /// Whether the call waits. A call that waits has nothing in the ledger, so it can be dropped.
    waits: Arc<AtomicBool>,
    first: Option<OwnedMutexGuard<()>>,
    counted: bool,
}

impl HoldQueue {
    /// Tells the waiting calls that money became free.
    pub(crate) fn notify(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.freed.notify_waiters();
        }
    }

    /// Returns the place of a new call, which waits for at most `limit`.
    pub(super) fn place(&self, session: SessionId, limit: Duration, waits: Arc<AtomicBool>) -> QueuePlace<'_> {
        QueuePlace { queue: self, session, deadline: Instant::now() + limit, waits, first: None, counted: false }
    }
}

impl QueuePlace<'_> {
    /// Waits until no earlier call of the session waits. Returns false at the deadline.
    pub(super) async fn wait_for_turn(&mut self) -> bool {
        if self.first.is_some() || self.queue.waiting.load(Ordering::Acquire) == 0 {
            return true;
        }
        let line = lock(&self.queue.lines).get(&self.session).cloned();
        match line {
            Some(line) => self.lock_line(line).await,
            None => true,
        }
    }

    /// Waits until money may have become free. Returns false at the deadline.
    pub(super) async fn wait_for_money(&mut self) -> bool {
        if !self.counted {
            self.counted = true;
            self.queue.waiting.fetch_add(1, Ordering::AcqRel);
        }
        if self.first.is_none() {
            let line = lock(&self.queue.lines).entry(self.session.clone()).or_default().clone();
            // Money may have become free while the call waited for earlier ones.
            return self.lock_line(line).await;
        }
        self.waits.store(true, Ordering::Release);
        let freed = tokio::time::timeout(ASK_AGAIN, self.queue.freed.notified());
        let in_time = tokio::time::timeout_at(self.deadline, freed).await.is_ok();
        self.waits.store(false, Ordering::Release);
        in_time
    }

    async fn lock_line(&mut self, line: Arc<FairMutex<()>>) -> bool {
        self.waits.store(true, Ordering::Release);
        self.first = tokio::time::timeout_at(self.deadline, line.lock_owned()).await.ok();
        self.waits.store(false, Ordering::Release);
        self.first.is_some()
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.first = None;
        if self.counted {
            self.queue.waiting.fetch_sub(1, Ordering::AcqRel);
            let mut lines = lock(&self.queue.lines);
            if lines.get(&self.session).is_some_and(|line| Arc::strong_count(line) == 1) {
                lines.remove(&self.session);
            }
        }
    }
}

/// Returns whether the limit leaves room for the call when the calls that hold money are settled.
pub(super) fn is_only_held(exceeded: &LimitExceeded) -> bool {
    match exceeded.limit.max {
        LimitAmount::Picos(most) | LimitAmount::Tokens(most) => {
            exceeded.limit.window != LimitWindow::Minute && exceeded.spent.saturating_add(exceeded.asked) <= most
        }
        LimitAmount::Requests(_) => false,
    }
}
