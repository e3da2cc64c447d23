//! Messages to a session, the reply to them, and the options of a new session.

use std::path::PathBuf;
use std::sync::Arc;

use gateway::RequestNormalizer;
use policy::EffectivePolicy;
use protocol::{Attachment, TurnId};

use crate::WorkspaceAccess;
use crate::replay::ReplaySession;

/// Options of a new session that the HTTP API does not have.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// The policy; the host's policy by default.
    pub policy: Option<Arc<EffectivePolicy>>,
    /// The account that pays; the session's id by default.
    pub account: Option<String>,
    /// The user, for usage reports.
    pub user: Option<String>,
    /// The task that the session belongs to.
    pub task_name: Option<String>,
    /// A host directory that is mounted read-only at `/deps`.
    pub dependencies: Option<PathBuf>,
    /// The recording to replay.
    pub replay: Option<ReplaySession>,
    /// Normalizes requests and events before a replay compares them; the built-in rules by default.
    pub normalizer: Option<Arc<RequestNormalizer>>,
    /// The name of the access token that creates the session, for the limit of open sessions.
    pub token: Option<String>,
    /// The host directories that the session may use as workspace.
    pub workspaces: WorkspaceAccess,
}

/// One message for the agent.
#[derive(Debug, Clone, Default)]
pub struct UserMessage {
    /// The text.
    pub text: String,
    /// Attached files.
    pub attachments: Vec<Attachment>,
    /// The client's id of the message; a second message with the same id is not accepted again.
    pub client_message_id: Option<String>,
    /// The behaviour while a turn runs.
    pub when_busy: WhenBusy,
}

impl UserMessage {
    /// Returns a message of text alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// The behaviour of a message that arrives during a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenBusy {
    /// Append the message to the queue.
    #[default]
    Queue,
    /// Refuse the message.
    Refuse,
    /// Interrupt the running turn, and put the message first in the queue.
    Steer,
}

/// The reply to an accepted message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedMessage {
    /// The turn that answers the message.
    pub turn_id: TurnId,
    /// All events of that turn have a higher sequence number.
    pub sequence: u64,
    /// Whether the message was queued behind another turn.
    pub queued: bool,
}
