//! The current turn of a session, with its model calls that are not recorded yet.
//!
//! The session sets the turn and waits for the calls. The gateway joins the turn through [`TurnTracker`].

use std::sync::{Arc, Mutex, MutexGuard};

use base::lock;
use gateway::{TurnGuard, TurnTracker};
use protocol::TurnId;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The turn that runs now. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CurrentTurn(Arc<Mutex<Option<RunningTurn>>>);

#[derive(Debug)]
struct RunningTurn {
    id: TurnId,
    /// The calls of the turn whose end is not recorded.
    calls: TaskTracker,
    /// Cancelled when the turn is interrupted, so that the gateway cancels the calls.
    interrupted: CancellationToken,
}

impl CurrentTurn {
    /// Sets the turn that runs now; `None` between turns.
    pub(crate) fn set(&self, turn: Option<TurnId>) {
        *self.running() =
            turn.map(|id| RunningTurn { id, calls: TaskTracker::new(), interrupted: CancellationToken::new() });
    }

    /// Returns the turn that runs now.
    pub(crate) fn get(&self) -> Option<TurnId> {
        self.running().as_ref().map(|running| running.id.clone())
    }

    /// Cancels the calls of the turn that runs now, so that they do not hold money that the next turn needs.
    pub(crate) fn interrupt_calls(&self) {
        if let Some(running) = &*self.running() {
            running.interrupted.cancel();
        }
    }

    /// Waits until the end of every call of the current turn is recorded, with its cost.
    pub(crate) async fn accounted(&self) {
        let calls = self.running().as_ref().map(|running| running.calls.clone());
        if let Some(calls) = calls {
            calls.close();
            calls.wait().await;
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningTurn>> {
        lock(&self.0)
    }
}

impl TurnTracker for CurrentTurn {
    fn join(&self) -> Option<TurnGuard> {
        self.running().as_ref().map(|running| {
            TurnGuard::new(running.id.clone(), running.calls.token()).with_interrupt(running.interrupted.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn turn_is_accounted_when_its_own_calls_are_recorded() {
        let current = CurrentTurn::default();
        assert!(current.join().is_none());
        current.set(TurnId::new("first").ok());
        let earlier_call = current.join();
        current.set(TurnId::new("second").ok());
        assert!(current.accounted().now_or_never().is_some(), "it waits for a call of an earlier turn");
        let (one, other) = (current.join(), current.join());
        for call in [one, other] {
            assert!(current.accounted().now_or_never().is_none(), "a call is open");
            drop(call);
        }
        assert!(current.accounted().now_or_never().is_some());
        drop(earlier_call);
    }
}
