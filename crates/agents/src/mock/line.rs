//! The lines of the mock agent in both directions, one JSON object each.
//!
//! The mock process uses the same types. `docs/mock-agent.md` has an example of each line.

use protocol::{Attachment, ContentPart, ItemKind, ItemRole, ItemStatus, PermissionReply, TurnOutcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A line that the mock agent prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentLine {
    /// The first line: the agent is ready for a prompt.
    Ready {
        /// The agent's session id, for `--resume`.
        session: String,
        /// Whether a session was resumed.
        resumed: bool,
        /// The model to call.
        model: String,
        /// The permission mode.
        mode: String,
    },
    /// An item starts.
    ItemStarted {
        /// The item at its start.
        item: LineItem,
    },
    /// Content is added to an item.
    ItemDelta {
        /// The item.
        id: String,
        /// The text to append.
        delta: String,
    },
    /// An item is complete.
    ItemCompleted {
        /// The complete item.
        item: LineItem,
    },
    /// The agent requests a permission.
    PermissionRequested {
        /// The id for the reply.
        id: String,
        /// The action.
        action: String,
        /// The tool, its input, and the pattern that `always` covers.
        metadata: Value,
    },
    /// The agent withdraws a permission request.
    PermissionWithdrawn {
        /// The request.
        id: String,
    },
    /// The agent asks a question.
    QuestionRequested {
        /// The id for the reply.
        id: String,
        /// The question.
        prompt: String,
        /// Possible answers; empty for free text.
        options: Vec<String>,
        /// All questions, if there are several or they have details: `question`, `header`, `multiSelect`, and `options`
        /// with `label` and `description`. `prompt` and `options` are then those of the first question.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        questions: Vec<Value>,
    },
    /// The agent withdraws a question.
    QuestionWithdrawn {
        /// The question.
        id: String,
    },
    /// An error.
    Error {
        /// The message for a person.
        message: String,
        /// The code for a program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Further details.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        details: Option<Value>,
    },
    /// The turn ended.
    TurnEnded {
        /// The outcome.
        outcome: TurnOutcome,
    },
}

/// An item as the mock agent prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LineItem {
    /// The agent's id of the item.
    pub id: String,
    /// The parent item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The kind of item.
    pub kind: ItemKind,
    /// The author of the item.
    pub role: ItemRole,
    /// The content.
    #[serde(default)]
    pub content: Vec<ContentPart>,
    /// The status.
    pub status: ItemStatus,
}

/// A line that the mock agent reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HostLine {
    /// Starts a turn. A prompt during a turn is queued.
    Prompt {
        /// The text.
        text: String,
        /// Attached files.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
    },
    /// Answers a permission request.
    PermissionReply {
        /// The request.
        id: String,
        /// The answer.
        reply: PermissionReply,
    },
    /// Answers a question; `null` rejects it.
    QuestionReply {
        /// The question.
        id: String,
        /// A list of answers for each question.
        answers: Option<Vec<Vec<String>>>,
    },
    /// Interrupts the turn.
    Interrupt,
}
