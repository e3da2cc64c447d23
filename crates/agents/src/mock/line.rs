//! The mock agent's lines, both ways: one JSON object a line.
//!
//! The agent's process writes and reads the same types, and `docs/mock-agent.md` shows each of them.

use protocol::{Attachment, ContentPart, ItemKind, ItemRole, ItemStatus, PermissionReply, TurnOutcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the mock agent prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentLine {
    /// The first line: it listens.
    Ready {
        /// Its own session id; `--resume` takes it.
        session: String,
        /// Whether it was resumed.
        resumed: bool,
        /// The model it will ask for.
        model: String,
        /// The permission mode it keeps.
        mode: String,
    },
    /// An item begins.
    ItemStarted {
        /// The item so far.
        item: LineItem,
    },
    /// An item grows.
    ItemDelta {
        /// Which item.
        id: String,
        /// What to append.
        delta: String,
    },
    /// An item is whole.
    ItemCompleted {
        /// All of it.
        item: LineItem,
    },
    /// It waits for a yes.
    PermissionRequested {
        /// Answered by this id.
        id: String,
        /// What it wants to do.
        action: String,
        /// The tool, its input, and what `always` would cover.
        metadata: Value,
    },
    /// It no longer waits for that yes.
    PermissionWithdrawn {
        /// Which one.
        id: String,
    },
    /// It waits for an answer.
    QuestionRequested {
        /// Answered by this id.
        id: String,
        /// What it asks.
        prompt: String,
        /// Answers to choose from; empty for free text.
        options: Vec<String>,
        /// Each thing it asks, where they are several or have more to them: `question`, `header`, `multiSelect` and
        /// `options` with `label` and `description`. The two fields above then are those of the first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        questions: Vec<Value>,
    },
    /// It no longer waits for that answer.
    QuestionWithdrawn {
        /// Which one.
        id: String,
    },
    /// Something failed.
    Error {
        /// For a person.
        message: String,
        /// For a program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Anything else.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        details: Option<Value>,
    },
    /// The turn is over.
    TurnEnded {
        /// How it ended.
        outcome: TurnOutcome,
    },
}

/// An item as the mock agent prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LineItem {
    /// The agent's own name for it.
    pub id: String,
    /// The item it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What sort of thing it is.
    pub kind: ItemKind,
    /// Who speaks.
    pub role: ItemRole,
    /// The thing itself.
    #[serde(default)]
    pub content: Vec<ContentPart>,
    /// How far it got.
    pub status: ItemStatus,
}

/// What the mock agent reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HostLine {
    /// A turn begins. One that comes during a turn waits for its end.
    Prompt {
        /// What the person says.
        text: String,
        /// Files that go with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
    },
    /// Answers a permission.
    PermissionReply {
        /// Which one.
        id: String,
        /// Yes, always, or no.
        reply: PermissionReply,
    },
    /// Answers a question, or with `null` refuses to.
    QuestionReply {
        /// Which one.
        id: String,
        /// A list of answers a question.
        answers: Option<Vec<Vec<String>>>,
    },
    /// Stops the turn.
    Interrupt,
}
