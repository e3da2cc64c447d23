//! Capabilities of each agent, as observed in the conformance tests.
//!
//! The conformance tests write and check the table in `capabilities.json`. An agent that was never tested has no
//! capabilities.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

static TABLE: LazyLock<BTreeMap<String, Capabilities>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../capabilities.json")).unwrap_or_default());

/// The capabilities of an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Capabilities {
    /// Has a mode in which it changes nothing.
    pub plan_mode: bool,
    /// Asks for permission before it acts.
    pub permissions: bool,
    /// Asks questions.
    pub questions: bool,
    /// Reports its tool calls.
    pub tool_calls: bool,
    /// Reports the results of tool calls.
    pub tool_results: bool,
    /// Sends text messages.
    pub text_messages: bool,
    /// Accepts images in a message and passes them to its model.
    pub images: bool,
    /// Accepts files with a message.
    pub file_attachments: bool,
    /// Reports the id of its own session.
    pub session_lifecycle: bool,
    /// Reports errors.
    pub error_events: bool,
    /// Reports the reasoning of its model.
    pub reasoning: bool,
    /// Reports its status.
    pub status: bool,
    /// Reports the output of commands.
    pub command_execution: bool,
    /// Reports changed files with a diff.
    pub file_changes: bool,
    /// Calls tools of MCP servers.
    pub mcp_tools: bool,
    /// Streams text in several parts.
    pub streaming_deltas: bool,
    /// Reports the start of an item, not only its end.
    pub item_started: bool,
    /// One process serves several sessions.
    pub shared_process: bool,
}

impl Capabilities {
    /// Returns the observed capabilities of an agent.
    pub fn of(agent: &str) -> Self {
        TABLE.get(agent).copied().unwrap_or_default()
    }
}
