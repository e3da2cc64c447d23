//! Items: messages, tool calls, tool results and statuses of a turn.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ItemId;

/// A message, tool call, tool result or status of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Item {
    /// The id assigned by the host; the same in started, delta and completed events.
    pub item_id: ItemId,
    /// The agent's own id of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_item_id: Option<String>,
    /// The parent item: the tool call of a sub-agent or of a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<ItemId>,
    /// The kind of the item.
    pub kind: ItemKind,
    /// The author of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<ItemRole>,
    /// The content.
    pub content: Vec<ContentPart>,
    /// The status.
    pub status: ItemStatus,
}

/// The kind of an item.
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

/// The author of an item.
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

/// The status of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum ItemStatus {
    InProgress,
    Completed,
    Failed,
}

/// One part of an item's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Structured data of another shape.
    Json {
        /// The unchanged data.
        json: Value,
    },
    /// A call of a tool.
    ToolCall {
        /// Name of the tool.
        name: String,
        /// The input of the call, as JSON text.
        arguments: String,
        /// Links the call with its result.
        call_id: String,
    },
    /// The result of a tool.
    ToolResult {
        /// Links the result with its call.
        call_id: String,
        /// The output, as passed to the agent.
        output: String,
    },
    /// A file that was read, written or patched.
    FileRef {
        /// Path inside the sandbox.
        path: String,
        /// The operation.
        action: FileAction,
        /// Unified diff, if the agent gave one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
    },
    /// Reasoning of the model.
    Reasoning {
        /// The text.
        text: String,
        /// Whether clients may show it.
        visibility: ReasoningVisibility,
    },
    /// An image in the workspace.
    Image {
        /// Path of the image.
        path: String,
        /// Media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime: Option<String>,
    },
    /// A short status message.
    Status {
        /// The message.
        label: String,
        /// Details.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
}

/// The operation on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum FileAction {
    Read,
    Write,
    Patch,
}

/// Whether clients may show a reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum ReasoningVisibility {
    Public,
    Private,
}
