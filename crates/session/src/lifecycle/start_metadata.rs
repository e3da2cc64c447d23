//! The metadata of `session.started`, from which a session is resumed or replayed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use protocol::{SessionId, TerminalStart};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The session and event from which a fork starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ForkOrigin {
    /// The session.
    pub(crate) session_id: SessionId,
    /// Sequence number of its last event at the time.
    pub(crate) sequence: u64,
}

/// Metadata of `session.started`, from which a session is resumed.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StartMetadata {
    pub(crate) agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent_version: Option<String>,
    pub(crate) agent_mode: Option<String>,
    pub(crate) permission_mode: Option<String>,
    pub(crate) model: Option<String>,
    /// The name of the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream: Option<String>,
    /// Digest of the policy; the session is never resumed under another one.
    pub(crate) policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task_name: Option<String>,
    /// The path of the workspace inside; `/workspace` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dependencies: Option<PathBuf>,
    /// The session that this one replays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replay_of: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forked_from: Option<ForkOrigin>,
    /// The session that has ended and that this one continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) continues: Option<ForkOrigin>,
    /// The terminal of an interactive session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) terminal: Option<TerminalStart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// The client's own data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<Map<String, Value>>,
    /// The rules by which the caller narrowed the policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rules: Vec<String>,
    /// Additional variables of the agent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) environment: BTreeMap<String, String>,
}
