//! What each agent can do, as the conformance runs showed it.
//!
//! The table is a file that those runs write and check; nothing here knows better. An agent that was never
//! run can nothing.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

static TABLE: LazyLock<BTreeMap<String, Capabilities>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../capabilities.json")).unwrap_or_default());

/// What an agent can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Capabilities {
    /// It has a mode in which it changes nothing.
    pub plan_mode: bool,
    /// It asks before it acts.
    pub permissions: bool,
    /// It asks questions.
    pub questions: bool,
    /// It tells of its tool calls.
    pub tool_calls: bool,
    /// It tells what came of them.
    pub tool_results: bool,
    /// It speaks.
    pub text_messages: bool,
    /// It takes pictures with a message, and its model sees them.
    pub images: bool,
    /// It takes files with a message.
    pub file_attachments: bool,
    /// It names its own sessions.
    pub session_lifecycle: bool,
    /// It tells of failures.
    pub error_events: bool,
    /// It tells what it thinks.
    pub reasoning: bool,
    /// It tells how it stands.
    pub status: bool,
    /// It shows the output of commands.
    pub command_execution: bool,
    /// It tells which files it changed, with a diff.
    pub file_changes: bool,
    /// It calls tools of MCP servers.
    pub mcp_tools: bool,
    /// Its words come piece by piece.
    pub streaming_deltas: bool,
    /// It tells when something begins, not only when it is done.
    pub item_started: bool,
    /// One process serves several sessions.
    pub shared_process: bool,
}

impl Capabilities {
    /// What the agent of that name was seen to do.
    pub fn of(agent: &str) -> Self {
        TABLE.get(agent).copied().unwrap_or_default()
    }
}
