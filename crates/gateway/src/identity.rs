//! The identity of a caller: everything the gateway knows about the session behind a listener or key.

use std::{io, sync::Arc, time::Duration};

use base::ByteBudget;
use bytes::Bytes;
use policy::EffectivePolicy;
use protocol::{BodyRef, SessionId, TurnId};
use store::{BodyKind, Journal, UsageLimit};
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};

use crate::{body_store::BodyStore, retention::BodyRetention, token::SessionToken, upstream::Upstream};

/// The session, account and key that calls belong to. Nothing that a client sends can change it.
#[derive(Clone)]
pub struct GatewayIdentity {
    /// The session.
    pub session: SessionId,
    /// The only token that authenticates the session.
    pub token: SessionToken,
    /// The account that pays. Sent upstream as `end_user`.
    pub account: Arc<str>,
    /// The user, if known.
    pub user: Option<Arc<str>>,
    /// The name of the key, if the calls use one of `viv keys`.
    pub key: Option<Arc<str>>,
    /// The agent that makes the calls.
    pub agent: Option<Arc<str>>,
    /// The run that calls are counted for: the session's id, unless a task names another.
    pub run: Arc<str>,
    /// The attempt within the run, from 1.
    pub attempt: u32,
    /// The journal that records the calls.
    pub journal: Arc<dyn Journal>,
    /// The store for request and response bodies.
    pub bodies: Arc<dyn BodyStore>,
    /// The source of the turn that is recorded with each call.
    pub turn: Arc<dyn TurnTracker>,
    /// The upstream that answers the calls.
    pub upstream: Arc<dyn Upstream>,
    /// The policy that says which models are allowed. `None` allows every model.
    pub policy: Option<Arc<EffectivePolicy>>,
    /// The budgets of the calls. A call must fit into every one.
    pub budgets: Vec<UsageLimit>,
    /// The limits on the use of the gateway itself.
    pub limits: GatewayLimits,
    /// The bytes in memory that all connections of the session share.
    pub in_flight: ByteBudget,
}

impl GatewayIdentity {
    /// Stores a body as far as the retention rules allow, and returns its reference.
    pub(crate) fn store_body(&self, kind: BodyKind, bytes: Bytes) -> io::Result<BodyRef> {
        self.limits.retention.store(&*self.bodies, kind, bytes)
    }
}

/// The turns of a session, as far as the gateway needs them.
pub trait TurnTracker: Send + Sync {
    /// Joins the turn that runs now and returns a guard; `None` between turns.
    fn join(&self) -> Option<TurnGuard>;
}

/// The tracker of clients that have no turns, such as the holder of a virtual key.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTurn;

impl TurnTracker for NoTurn {
    fn join(&self) -> Option<TurnGuard> {
        None
    }
}

/// A call's part in a turn. Dropped when the end of the call is recorded.
#[derive(Debug)]
pub struct TurnGuard {
    turn: TurnId,
    interrupted: CancellationToken,
    _open: TaskTrackerToken,
}

impl TurnGuard {
    /// Makes a guard for `turn` that keeps `open` until dropped.
    pub fn new(turn: TurnId, open: TaskTrackerToken) -> Self {
        Self { turn, interrupted: CancellationToken::new(), _open: open }
    }

    /// Sets the token that is cancelled when the turn is interrupted. The gateway then cancels the call.
    #[must_use]
    pub fn with_interrupt(mut self, interrupted: CancellationToken) -> Self {
        self.interrupted = interrupted;
        self
    }

    /// Returns the token that is cancelled when the turn is interrupted.
    pub(crate) fn interrupted(&self) -> &CancellationToken {
        &self.interrupted
    }

    /// Returns the id of the turn.
    pub fn turn(&self) -> &TurnId {
        &self.turn
    }
}

/// Why a token does not authenticate a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticationError {
    /// The listener belongs to a session, and the token is not the session's token.
    #[error("the token is missing or belongs to another session")]
    OtherSession,
    /// The token is not a valid key.
    #[error("the key is missing, unknown, revoked or expired")]
    KeyInvalid,
    /// The key may be valid, but cannot be used now.
    #[error("the key cannot be used now: {0}")]
    Unavailable(String),
}

/// Limits on the use of the gateway by one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayLimits {
    /// The most bytes of one request body.
    pub request_bytes: usize,
    /// The most bytes of one response. A longer response is cut off.
    pub answer_bytes: usize,
    /// The most connections open at a time. Further ones wait.
    pub connections: usize,
    /// The most bytes of bodies in memory, for all connections of a session together.
    pub in_flight_bytes: usize,
    /// The most time without a byte of a request body, and the most time to wait for room in memory.
    pub body_idle: Duration,
    /// The most time for a whole request body.
    pub body_total: Duration,
    /// How long a response is read after its client disconnected, so that the call is metered.
    pub drain: Duration,
    /// How long a call waits for money that other calls hold, before it is refused with a retryable error.
    pub held_wait: Duration,
    /// How long running calls may take to end when the attachment is closed.
    pub close_grace: Duration,
    /// How much of the request and response bodies is stored.
    pub retention: BodyRetention,
    /// Whether stored bodies are compressed.
    pub compress: bool,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            request_bytes: 32 << 20,
            answer_bytes: 64 << 20,
            connections: 256,
            in_flight_bytes: 64 << 20,
            body_idle: Duration::from_secs(30),
            body_total: Duration::from_secs(300),
            drain: Duration::from_secs(120),
            held_wait: Duration::from_secs(15),
            close_grace: Duration::from_millis(500),
            retention: BodyRetention::Full,
            compress: false,
        }
    }
}
