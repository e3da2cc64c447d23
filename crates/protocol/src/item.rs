//! What an agent says and does, piece by piece.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ItemId;

/// A message, tool call, tool result or status of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Item {
    /// Ours; the same in started, delta and completed.
    pub item_id: ItemId,
    /// The agent's own name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_item_id: Option<String>,
    /// The item this one belongs to: a sub-agent's tool call, a result's call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<ItemId>,
    /// What sort of thing it is.
    pub kind: ItemKind,
    /// Who speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<ItemRole>,
    /// The thing itself.
    pub content: Vec<ContentPart>,
    /// How far it got.
    pub status: ItemStatus,
}

/// What sort of thing an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum ItemKind {
    Message,
    ToolCall,
    ToolResult,
    System,
    Status,
    Unknown,
}

/// Who speaks in an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum ItemRole {
    User,
    Assistant,
    System,
    Tool,
}

/// How far an item got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum ItemStatus {
    InProgress,
    Completed,
    Failed,
}

/// One piece of an item's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// Something structured that has no shape of ours.
    Json {
        /// As it came.
        json: Value,
    },
    /// The agent calls a tool.
    ToolCall {
        /// Name of the tool.
        name: String,
        /// Its input, as JSON text.
        arguments: String,
        /// Pairs the call with its result.
        call_id: String,
    },
    /// What a tool gave back.
    ToolResult {
        /// Pairs the result with its call.
        call_id: String,
        /// As the agent was told.
        output: String,
    },
    /// A file was read, written or patched.
    FileRef {
        /// Path as the agent knows it.
        path: String,
        /// What happened to it.
        action: FileAction,
        /// Unified diff, where the agent gave one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
    },
    /// The model thinks.
    Reasoning {
        /// The thought.
        text: String,
        /// Whether a person may read it.
        visibility: ReasoningVisibility,
    },
    /// A picture in the workspace.
    Image {
        /// Where it is.
        path: String,
        /// Its media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime: Option<String>,
    },
    /// A short word on what goes on.
    Status {
        /// The word.
        label: String,
        /// More of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum FileAction {
    Read,
    Write,
    Patch,
}

/// Whether a thought may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum ReasoningVisibility {
    Public,
    Private,
}
