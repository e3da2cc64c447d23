//! Who calls: everything the gateway knows about the session behind a listener.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use protocol::{SessionId, TurnId};
use store::Journal;

use crate::{bodies::BodyStore, token::SessionToken, upstream::Upstream};

/// The session a listener belongs to. Nothing a client sends can change it.
#[derive(Clone)]
pub struct Identity {
    /// The session.
    pub session: SessionId,
    /// The only token the listener takes.
    pub token: SessionToken,
    /// The account that pays.
    pub account: String,
    /// Where its calls are recorded.
    pub journal: Arc<dyn Journal>,
    /// Where their bodies are kept.
    pub bodies: Arc<dyn BodyStore>,
    /// The turn that is running, for the records.
    pub turn: CurrentTurn,
    /// The model behind it.
    pub upstream: Arc<dyn Upstream>,
    /// What it may use.
    pub limits: Limits,
}

/// The turn that is running now: set by the session, read by the gateway at the start of each call.
#[derive(Debug, Clone, Default)]
pub struct CurrentTurn(Arc<Mutex<Option<TurnId>>>);

impl CurrentTurn {
    /// Says which turn runs now, if any.
    pub fn set(&self, turn: Option<TurnId>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = turn;
    }

    /// The turn that runs now.
    pub fn get(&self) -> Option<TurnId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What one session may use of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Calls that reach the upstream; none: no limit.
    pub max_requests: Option<u64>,
    /// Pico-dollars its calls may cost together; none: no limit.
    pub budget_picos: Option<i64>,
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_requests: None,
            budget_picos: None,
            request_bytes: 32 << 20,
            answer_bytes: 64 << 20,
            connections: 256,
            drain: Duration::from_secs(120),
            close_grace: Duration::from_millis(500),
        }
    }
}
