//! Who calls: everything the gateway knows about the session behind a listener or a key.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use base::lock;
use bytes::Bytes;
use policy::EffectivePolicy;
use protocol::{BodyRef, SessionId, TurnId};
use store::{BodyKind, Journal, UsageLimit};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::{bodies::BodyStore, keep::BodyRetention, token::SessionToken, upstream::Upstream};

/// Whoever a call belongs to. Nothing a client sends can change it.
#[derive(Clone)]
pub struct GatewayIdentity {
    /// The session.
    pub session: SessionId,
    /// The only token that is taken for it.
    pub token: SessionToken,
    /// The account that pays: the `end_user` of every bill.
    pub account: Arc<str>,
    /// The person.
    pub user: Option<Arc<str>>,
    /// Name of the key its calls come with, if it is one of `viv keys`.
    pub key: Option<Arc<str>>,
    /// Which agent calls.
    pub agent: Option<Arc<str>>,
    /// The run its calls are counted under; the session's id unless a task says otherwise.
    pub run: Arc<str>,
    /// Which attempt of the run, from 1.
    pub attempt: u32,
    /// Where its calls are recorded.
    pub journal: Arc<dyn Journal>,
    /// Where their bodies are kept.
    pub bodies: Arc<dyn BodyStore>,
    /// The turn that is running, for the records.
    pub turn: CurrentTurn,
    /// The model behind it.
    pub upstream: Arc<dyn Upstream>,
    /// Which models it may name; none: any.
    pub policy: Option<Arc<EffectivePolicy>>,
    /// What its calls must fit into, all of them.
    pub budgets: Vec<UsageLimit>,
    /// What it may use of the gateway itself.
    pub limits: GatewayLimits,
}

impl GatewayIdentity {
    /// Keeps of a body of its calls what is to be kept of it.
    pub(crate) fn keep(&self, kind: BodyKind, bytes: Bytes) -> io::Result<BodyRef> {
        self.limits.retention.put(&*self.bodies, kind, bytes)
    }
}

/// Why whoever shows a token is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticationError {
    /// The listener is that of a session, and the token is not its own.
    #[error("this listener belongs to another session, or the token is missing")]
    OtherSession,
    /// It is no key, or none that is good any more.
    #[error("unknown, revoked or expired key, or none at all")]
    KeyInvalid,
    /// It may be good, and cannot be used now.
    #[error("the key cannot be used now: {0}")]
    Unavailable(String),
}

/// The turn that is running now: set by the session, joined by the gateway's calls.
#[derive(Debug, Clone, Default)]
pub struct CurrentTurn(Arc<Mutex<Option<Running>>>);

#[derive(Debug)]
struct Running {
    turn: TurnId,
    /// Its calls whose end is not on record.
    calls: TaskTracker,
}

/// The part of a call in a turn; it ends when the call's end is on record.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) turn: TurnId,
    _open: TaskTrackerToken,
}

impl CurrentTurn {
    /// Says which turn runs now, if any.
    pub fn set(&self, turn: Option<TurnId>) {
        *self.running() = turn.map(|turn| Running { turn, calls: TaskTracker::new() });
    }

    /// The turn that runs now.
    pub fn get(&self) -> Option<TurnId> {
        self.running().as_ref().map(|running| running.turn.clone())
    }

    /// Returns when no call of the turn that runs now is open: what they cost is on record then.
    pub async fn accounted(&self) {
        let calls = self.running().as_ref().map(|running| running.calls.clone());
        if let Some(calls) = calls {
            calls.close();
            calls.wait().await;
        }
    }

    pub(crate) fn join(&self) -> Option<Part> {
        let running = self.running();
        running.as_ref().map(|running| Part { turn: running.turn.clone(), _open: running.calls.token() })
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        lock(&self.0)
    }
}

/// What one session may use of the gateway itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Bytes of one request body.
    pub request_bytes: usize,
    /// Bytes of one answer; a longer one is cut.
    pub answer_bytes: usize,
    /// Connections open at a time; further ones wait.
    pub connections: usize,
    /// How long an answer is still read after its client left, so that it is metered.
    pub drain: Duration,
    /// How long running calls may take to end once the attachment is closed.
    pub close_grace: Duration,
    /// How much of the bodies of its calls is kept.
    pub retention: BodyRetention,
    /// Whether what is kept is compressed.
    pub compress: bool,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            request_bytes: 32 << 20,
            answer_bytes: 64 << 20,
            connections: 256,
            drain: Duration::from_secs(120),
            close_grace: Duration::from_millis(500),
            retention: BodyRetention::Full,
            compress: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_turn_is_accounted_when_its_own_calls_are() {
        let current = CurrentTurn::default();
        assert!(current.join().is_none());
        current.set(TurnId::new("first").ok());
        let drained = current.join();
        current.set(TurnId::new("second").ok());
        assert!(current.accounted().now_or_never().is_some(), "a call of an earlier turn is waited for");
        let (one, other) = (current.join(), current.join());
        for open in [one, other] {
            assert!(current.accounted().now_or_never().is_none(), "a call is open");
            drop(open);
        }
        assert!(current.accounted().now_or_never().is_some());
        drop(drained);
    }
}
