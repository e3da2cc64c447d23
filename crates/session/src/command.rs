//! What can be asked of a running session.

use protocol::{PermissionId, PermissionReply, QuestionId, TurnId};
use tokio::sync::oneshot;

use crate::change::Change;
use crate::{AcceptedMessage, SessionError, UserMessage};

/// Where the answer to a command goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, SessionError>>;

/// What can be asked of a running session.
pub(crate) enum Command {
    /// Take a message.
    Send(UserMessage, Reply<AcceptedMessage>),
    /// Take a message that waits out of the queue.
    Unqueue(TurnId, Reply<()>),
    /// Start the agent if it does not run, and go on with what waits.
    Resume(Reply<()>),
    /// Stop the turn.
    Interrupt(Reply<()>),
    /// Answer a permission.
    Permission(PermissionId, PermissionReply, Reply<()>),
    /// Answer a question, or reject it.
    Question(QuestionId, Option<Vec<Vec<String>>>, Reply<()>),
    /// Take back what was allowed for the rest of the session.
    Revoke(PermissionId, Reply<()>),
    /// Change what it may reach.
    Change(Change, Reply<()>),
    /// End the session.
    Terminate(Reply<()>),
    /// The host goes away; the session stays.
    Close,
}

impl Command {
    /// Answers it with an error.
    pub(crate) fn refuse(self, error: SessionError) {
        // Whoever asked may have left.
        let _ = match self {
            Self::Send(_, reply) => reply.send(Err(error)).is_err(),
            Self::Unqueue(_, reply)
            | Self::Resume(reply)
            | Self::Interrupt(reply)
            | Self::Permission(_, _, reply)
            | Self::Question(_, _, reply)
            | Self::Revoke(_, reply)
            | Self::Change(_, reply)
            | Self::Terminate(reply) => reply.send(Err(error)).is_err(),
            Self::Close => false,
        };
    }
}
