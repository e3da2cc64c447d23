//! The `data` of the events that the session API defines: sessions, turns, items, permissions and questions.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Item, ItemId, PermissionId, QuestionId, TurnId};

/// `session.started`: the first event of a session.
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
    /// How the session ended.
    pub reason: SessionEndReason,
    /// The party that ended the session.
    pub terminated_by: TerminatedBy,
    /// The error message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Exit code of the agent's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Output of the agent's process on stderr.
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

/// The party that ended a session.
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
    /// Number of lines in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_lines: Option<u64>,
}

/// `turn.started` and `turn.ended`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Turn {
    /// Whether the turn started or ended.
    pub phase: TurnPhase,
    /// The turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// How the turn ended. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnOutcome>,
    /// Other data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Start or end of a turn.
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
    /// The agent reported success.
    Completed,
    /// The agent reported a failure, or its process died.
    Failed,
    /// A client stopped the turn, or the host died.
    Interrupted,
    /// The turn exceeded its time limit.
    TimedOut,
}

/// `item.started` and `item.completed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ItemEvent {
    /// The item in its current state.
    pub item: Item,
}

/// `item.delta`: more text of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ItemDelta {
    /// The item.
    pub item_id: ItemId,
    /// The agent's own id of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_item_id: Option<String>,
    /// The text to append.
    pub delta: String,
}

/// `error`: something failed; the session may continue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorData {
    /// Message for people.
    pub message: String,
    /// Code for programs; see [`crate::ProblemCode`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Other data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// `permission.requested` and `permission.resolved`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Permission {
    /// The id to answer with.
    pub permission_id: PermissionId,
    /// The requested action.
    pub action: String,
    /// Whether it is pending, or how it was answered.
    pub status: PermissionStatus,
    /// The tool, its input, and the reason of the answer (`expired`, `turn_ended`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// The status of a permission.
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

/// `grant.created` and `grant.revoked`: an action that a person allowed for the rest of a session. A grant covers
/// exactly this action, never a category.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// The permission that was answered with `always`. This id revokes the grant.
    pub grant_id: PermissionId,
    /// The action that the agent may repeat.
    pub action: String,
    /// The pattern in the request, or the tool and its whole input. Any other input needs a new permission.
    #[serde(rename = "match")]
    pub matching: Value,
}

/// `question.requested` and `question.resolved`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Question {
    /// The id to answer with.
    pub question_id: QuestionId,
    /// The text of the question.
    pub prompt: String,
    /// Answers to choose from.
    pub options: Vec<String>,
    /// The first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// All answers, one list for each prompt. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Vec<Vec<String>>>,
    /// Whether it is pending, or how it was answered.
    pub status: QuestionStatus,
    /// `questions`: all prompts, each with `question`, `header`, `multiSelect` and `options` of `label` and
    /// `description`, if the agent gives more than the fields above can hold. `reason`: why the question was resolved
    /// without an answer. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// One prompt of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionPrompt {
    /// A short heading.
    pub header: Option<String>,
    /// The text of the prompt.
    pub prompt: String,
    /// Answers to choose from.
    pub options: Vec<String>,
    /// A description of each option; empty if the agent gives none.
    pub descriptions: Vec<String>,
    /// Whether more than one option may be chosen.
    pub multi_select: bool,
}

impl Question {
    /// Returns all prompts, in the order of the answers.
    ///
    /// Some agents ask several prompts at once. Then the fields hold the first one, and the metadata holds all.
    pub fn prompts(&self) -> Vec<QuestionPrompt> {
        let list = self.metadata.as_ref().and_then(|metadata| metadata["questions"].as_array());
        let read = |prompt: &Value| {
            let options = prompt["options"].as_array().into_iter().flatten();
            let read_option = |option: &Value| {
                let description = option["description"].as_str().unwrap_or_default();
                Some((option["label"].as_str().or(option.as_str())?.to_owned(), description.to_owned()))
            };
            let (options, descriptions) = options.filter_map(read_option).unzip();
            QuestionPrompt {
                header: prompt["header"].as_str().map(str::to_owned),
                prompt: prompt["question"].as_str().unwrap_or(&self.prompt).to_owned(),
                options,
                descriptions,
                multi_select: prompt["multiSelect"].as_bool().unwrap_or(false),
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

/// The status of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum QuestionStatus {
    Requested,
    Answered,
    Rejected,
}

/// `agent.unparsed`: a line of the agent could not be parsed; the line is in `raw`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentUnparsed {
    /// The parse error.
    pub error: String,
    /// The stream of the line (`stdout`, `stderr`).
    pub location: String,
    /// SHA-256 of the line, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_hash: Option<String>,
}
