//! Who calls: everything the gateway knows about the session behind a listener or a key.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use policy::Effective;
use protocol::{SessionId, TurnId};
use store::{Journal, Limit};

use crate::{bodies::BodyStore, keep::Keep, token::SessionToken, upstream::Upstream};

/// Whoever a call belongs to. Nothing a client sends can change it.
#[derive(Clone)]
pub struct Identity {
    /// The session.
    pub session: SessionId,
    /// The only token that is taken for it.
    pub token: SessionToken,
    /// The account that pays: the `end_user` of every bill.
    pub account: String,
    /// The person.
    pub user: Option<String>,
    /// Name of the key its calls come with, if it is one of `viv keys`.
    pub key: Option<String>,
    /// Which agent calls.
    pub agent: Option<String>,
    /// The run its calls are counted under; the session's id unless a task says otherwise.
    pub run: String,
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
    pub policy: Option<Arc<Effective>>,
    /// What its calls must fit into, all of them.
    pub budgets: Vec<Limit>,
    /// What it may use of the gateway itself.
    pub limits: Limits,
}

/// Why whoever shows a token is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
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

/// What one session may use of the gateway itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
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
    pub keep: Keep,
    /// Whether what is kept is compressed.
    pub compress: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes: 32 << 20,
            answer_bytes: 64 << 20,
            connections: 256,
            drain: Duration::from_secs(120),
            close_grace: Duration::from_millis(500),
            keep: Keep::Full,
            compress: false,
        }
    }
}
