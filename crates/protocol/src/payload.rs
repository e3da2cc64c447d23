//! The `data` of the events that the session API had before us.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Item, ItemId, PermissionId, QuestionId, TurnId};

/// `session.started`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionStarted {
    /// Agent, modes and model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// `session.ended`: the last event of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionEnded {
    /// How it ended.
    pub reason: SessionEndReason,
    /// Who ended it.
    pub terminated_by: TerminatedBy,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Exit code of the agent's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What the agent's process wrote to stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<StderrOutput>,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum SessionEndReason {
    Completed,
    Error,
    Terminated,
}

/// Who ended a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum TerminatedBy {
    Agent,
    Daemon,
}

/// The first and last lines of a long stderr.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StderrOutput {
    /// First lines, or all of it when not truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Last lines, when truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
    /// Whether lines between head and tail were left out.
    pub truncated: bool,
    /// How many lines there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_lines: Option<u64>,
}

/// `turn.started` and `turn.ended`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Turn {
    /// Which of the two.
    pub phase: TurnPhase,
    /// The turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// How it ended; ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnOutcome>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Which end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum TurnPhase {
    Started,
    Ended,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    /// The agent said it was done.
    Completed,
    /// The agent said it failed, or its process died.
    Failed,
    /// Somebody stopped it, or the host died under it.
    Interrupted,
    /// Nothing came for too long.
    TimedOut,
}

/// `item.started` and `item.completed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ItemEvent {
    /// The item as it is now.
    pub item: Item,
}

/// `item.delta`: more text of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ItemDelta {
    /// Which item grows.
    pub item_id: ItemId,
    /// The agent's own name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_item_id: Option<String>,
    /// What to append.
    pub delta: String,
}

/// `error`: something failed, the session may go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorData {
    /// For a person.
    pub message: String,
    /// For a program; see [`crate::ProblemCode`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// `permission.requested` and `permission.resolved`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Permission {
    /// Answered by this id.
    pub permission_id: PermissionId,
    /// What the agent wants to do.
    pub action: String,
    /// Asked, or how it was answered.
    pub status: PermissionStatus,
    /// The tool, its input, and why the answer came (`expired`, `turn_ended`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Where a permission stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum PermissionStatus {
    Requested,
    Accept,
    AcceptForSession,
    Reject,
}

/// A person's answer to a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum PermissionReply {
    Once,
    Always,
    Reject,
}

impl From<PermissionReply> for PermissionStatus {
    fn from(reply: PermissionReply) -> Self {
        match reply {
            PermissionReply::Once => Self::Accept,
            PermissionReply::Always => Self::AcceptForSession,
            PermissionReply::Reject => Self::Reject,
        }
    }
}

/// `grant.created` and `grant.revoked`: what a person allowed for the rest of a session. Exactly that, never a category.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// The permission that was answered with `always`; the grant is revoked by this id.
    pub grant_id: PermissionId,
    /// What the agent may do without asking again.
    pub action: String,
    /// The pattern that the request showed, or the tool and its whole input: whatever has another is asked about again.
    #[serde(rename = "match")]
    pub matching: Value,
}

/// `question.requested` and `question.resolved`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Question {
    /// Answered by this id.
    pub question_id: QuestionId,
    /// What is asked.
    pub prompt: String,
    /// Answers to choose from.
    pub options: Vec<String>,
    /// The first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Every answer, a list a question; ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Vec<Vec<String>>>,
    /// Asked, or how it was answered.
    pub status: QuestionStatus,
    /// `questions`: each thing it asks, with `question`, `header`, `multiSelect` and `options` of `label` and `description`, where the
    /// agent says more than fits above. `reason`: why it was resolved when nobody answered. Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// One of the things that a request asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionPrompt {
    /// A word or two for what is asked.
    pub header: Option<String>,
    /// What is asked.
    pub prompt: String,
    /// Answers to choose from.
    pub options: Vec<String>,
    /// What the agent says of each of them; empty where it says nothing.
    pub descriptions: Vec<String>,
    /// Whether more than one of them may be chosen.
    pub multi_select: bool,
}

impl Question {
    /// Each thing it asks, in the order in which the answers are given. Tools of several agents ask a few at once: then
    /// the first is in the fields, and all of them are in the metadata.
    pub fn prompts(&self) -> Vec<QuestionPrompt> {
        let list = self.metadata.as_ref().and_then(|metadata| metadata["questions"].as_array());
        let read = |asked: &Value| {
            let options = asked["options"].as_array().into_iter().flatten();
            let read = |option: &Value| {
                let description = option["description"].as_str().unwrap_or_default();
                Some((option["label"].as_str().or(option.as_str())?.to_owned(), description.to_owned()))
            };
            let (options, descriptions) = options.filter_map(read).unzip();
            QuestionPrompt {
                header: asked["header"].as_str().map(str::to_owned),
                prompt: asked["question"].as_str().unwrap_or(&self.prompt).to_owned(),
                options,
                descriptions,
                multi_select: asked["multiSelect"].as_bool().unwrap_or(false),
            }
        };
        match list.filter(|list| !list.is_empty()) {
            Some(list) => list.iter().map(read).collect(),
            None => vec![QuestionPrompt {
                header: None,
                prompt: self.prompt.clone(),
                options: self.options.clone(),
                descriptions: vec![String::new(); self.options.len()],
                multi_select: false,
            }],
        }
    }
}

/// Where a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum QuestionStatus {
    Requested,
    Answered,
    Rejected,
}

/// `agent.unparsed`: the agent printed something we could not read; it is in `raw`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentUnparsed {
    /// What was wrong with it.
    pub error: String,
    /// Where it came from (`stdout`, `stderr`).
    pub location: String,
    /// SHA-256 of the line, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_hash: Option<String>,
}
