//! Commands to the actor of a running session.

use protocol::{HostDraining, PermissionId, PermissionReply, QuestionId, SessionUpdated, TurnId};
use tokio::sync::oneshot;

use crate::lifecycle::SessionPolicyChange;
use crate::{AcceptedMessage, SessionError, UserMessage};

/// The channel for the reply to a command.
pub(crate) type ReplySender<T> = oneshot::Sender<Result<T, SessionError>>;

/// An answer with the caller that gave it.
#[derive(Debug, Clone)]
pub(crate) struct GivenAnswer<T> {
    /// The answer.
    pub(crate) answer: T,
    /// The caller; `None` when the caller has no name.
    pub(crate) by: Option<String>,
}

/// A command to the actor of a session.
pub(crate) enum ActorCommand {
    /// Start a turn with a message, or queue the message.
    Send(UserMessage, ReplySender<AcceptedMessage>),
    /// Remove a message from the queue.
    Unqueue(TurnId, ReplySender<()>),
    /// Start the agent if it does not run, and continue with the queued messages.
    Resume(ReplySender<()>),
    /// Continue with the queued messages of a host that died; a session without any stays asleep.
    RunQueue,
    /// Tell clients that the host stops, while a turn runs.
    Drain(HostDraining),
    /// Interrupt the turn.
    Interrupt(ReplySender<()>),
    /// Answer a permission request.
    Permission(PermissionId, GivenAnswer<PermissionReply>, ReplySender<()>),
    /// Answer a question, or reject it.
    Question(QuestionId, GivenAnswer<Option<Vec<Vec<String>>>>, ReplySender<()>),
    /// Revoke a grant.
    Revoke(PermissionId, ReplySender<()>),
    /// Narrow or widen the network policy.
    ChangePolicy(SessionPolicyChange, ReplySender<()>),
    /// Change title, labels or metadata.
    Update(SessionUpdated, ReplySender<()>),
    /// End the session.
    Terminate(ReplySender<()>),
    /// Stop the agent because the host shuts down; the session can be resumed.
    Close,
}

impl ActorCommand {
    /// Replies with `error`.
    pub(crate) fn refuse(self, error: SessionError) {
        // The caller may be gone.
        let _ = match self {
            Self::Send(_, reply) => reply.send(Err(error)).is_err(),
            Self::Unqueue(_, reply)
            | Self::Resume(reply)
            | Self::Interrupt(reply)
            | Self::Permission(_, _, reply)
            | Self::Question(_, _, reply)
            | Self::Revoke(_, reply)
            | Self::ChangePolicy(_, reply)
            | Self::Update(_, reply)
            | Self::Terminate(reply) => reply.send(Err(error)).is_err(),
            Self::RunQueue | Self::Drain(_) | Self::Close => false,
        };
    }
}
