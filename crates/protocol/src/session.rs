//! Request and response bodies of the session API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{SessionId, SessionStatus};

/// Body of `POST /v1/sessions/{id}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSession {
    /// The agent.
    pub agent: String,
    /// The agent's own mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_mode: Option<String>,
    /// `default`, `plan`, `acceptEdits` or `bypass`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<String>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The upstream for model calls; absent means the default upstream. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Variant of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The workspace on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// MCP servers of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<BTreeMap<String, Value>>,
    /// Skills of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Value>,
    /// Short texts by which lists are filtered. Our addition to the API.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A JSON object of the client, kept unchanged. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub metadata: Option<Map<String, Value>>,
    /// Rules `key=value` that narrow the policy: `models.budget_usd=0.50`, `net.enabled=false`. Our addition to the API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<String>,
    /// Additional environment variables of the agent. They are recorded, so they are no place for secrets. Our addition
    /// to the API.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The account that pays; only callers with the scope `admin` may set it. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The user; only callers with the scope `admin` may set it. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Starts the agent's own terminal UI instead of a dialogue. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalStart>,
}

/// The start of an interactive session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TerminalStart {
    /// The number of lines of the window, from 1 to 1000.
    pub rows: u16,
    /// The number of characters in a line, from 1 to 1000.
    pub columns: u16,
    /// The prompt with which the terminal UI opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// The agent mode of an interactive session in lists.
pub const INTERACTIVE: &str = "interactive";

/// A file attached to a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// Path of the file.
    pub path: String,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    /// File name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
}

/// One row of `GET /v1/sessions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    /// The session.
    pub session_id: SessionId,
    /// Name for people, two words. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The agent.
    pub agent: String,
    /// The agent's own mode.
    pub agent_mode: String,
    /// The permission mode.
    pub permission_mode: String,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Variant of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The agent's own session id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_session_id: Option<String>,
    /// Whether `session.ended` was recorded.
    pub ended: bool,
    /// Whether the journal is damaged and was moved to quarantine. Our addition to the API.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
    /// The current activity of the session. Our addition to the API.
    #[serde(default)]
    pub status: SessionStatus,
    /// Time since when it does so, in milliseconds since 1970. Our addition to the API.
    #[serde(default)]
    pub status_since: i64,
    /// Number of the last event.
    pub event_count: u64,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Milliseconds since 1970.
    pub updated_at: i64,
    /// The workspace on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// MCP servers of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<BTreeMap<String, Value>>,
    /// Skills of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Value>,
    /// Short texts by which lists are filtered. Our addition to the API.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A JSON object of the client, kept unchanged. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub metadata: Option<Map<String, Value>>,
    /// The account that pays, if one was set. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The user, if one was set. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Number of turns that have ended. Our addition to the API.
    #[serde(default)]
    pub turns: u64,
    /// Cost of the model calls at the end of the last turn, in pico-dollars. Our addition to the API.
    #[serde(default)]
    pub cost_picos: i64,
    /// Connections that the policy denied, at the end of the last turn. Our addition to the API.
    #[serde(default)]
    pub denials: u64,
    /// The start of the last message. Our addition to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_prompt: Option<String>,
}
