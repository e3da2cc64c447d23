//! What a client says to a session, and what it is told at once.

use std::path::PathBuf;
use std::sync::Arc;

use gateway::RequestNormalizer;
use policy::EffectivePolicy;
use protocol::{Attachment, TurnId};

use crate::WorkspaceAccess;
use crate::replay::ReplaySession;

/// How a session is made, beyond what the wire contract knows.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// What it may do; the host's own policy when there is none.
    pub policy: Option<Arc<EffectivePolicy>>,
    /// The account that pays; the session's own id when there is none.
    pub account: Option<String>,
    /// The person.
    pub user: Option<String>,
    /// The task it belongs to.
    pub task_name: Option<String>,
    /// A directory of the host that is shown at `/deps`, read-only.
    pub dependencies: Option<PathBuf>,
    /// It plays a recorded session again.
    pub replay: Option<ReplaySession>,
    /// What does not count when a session is played again; only what no two runs have in common when there is none.
    pub normalizer: Option<Arc<RequestNormalizer>>,
    /// The directories of the host that may be named for it.
    pub workspaces: WorkspaceAccess,
}

/// One message for the agent.
#[derive(Debug, Clone, Default)]
pub struct UserMessage {
    /// The words.
    pub text: String,
    /// Files that go with them.
    pub attachments: Vec<Attachment>,
    /// Chosen by the client: a second message with the same one is the same message.
    pub client_message_id: Option<String>,
    /// What to do when a turn is running.
    pub when_busy: WhenBusy,
}

impl UserMessage {
    /// A message of words alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// What to do with a message that comes in the middle of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenBusy {
    /// It waits; its turn comes after those that wait already.
    #[default]
    Queue,
    /// It is refused.
    Refuse,
    /// The running turn is interrupted and this one comes next, before those that wait.
    Steer,
}

/// A message was taken; it is on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedMessage {
    /// The turn that answers it.
    pub turn_id: TurnId,
    /// Everything about that turn comes after this number.
    pub sequence: u64,
    /// Whether it waits for another turn to end.
    pub queued: bool,
}
