//! What clients are told about the agents that can be started.

use std::collections::BTreeMap;

use agents::{Agent, Capabilities};
use serde::Serialize;
use session::{Drift, Enlisted, Sessions};

/// `GET /v1/agents`.
#[derive(Serialize)]
pub(crate) struct AgentList {
    agents: Vec<AgentInfo>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentInfo {
    id: &'static str,
    installed: bool,
    /// Always: keys are the gateway's, no agent ever holds one.
    credentials_available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    capabilities: Capabilities,
    /// What was not understood of it since the server started, by version.
    drift: BTreeMap<String, Drift>,
}

impl AgentList {
    pub(crate) fn of(sessions: &Sessions) -> Self {
        let known = sessions.roster().all().into_iter();
        Self { agents: known.map(|(agent, enlisted)| AgentInfo::of(agent, enlisted, sessions)).collect() }
    }
}

impl AgentInfo {
    fn of(agent: &dyn Agent, enlisted: Option<Enlisted>, sessions: &Sessions) -> Self {
        let path = enlisted.as_ref().and_then(|enlisted| enlisted.program.to_str().map(str::to_owned));
        Self {
            id: agent.id(),
            installed: enlisted.is_some(),
            credentials_available: true,
            version: enlisted.and_then(|enlisted| enlisted.version),
            path,
            capabilities: Capabilities::of(agent.id()),
            drift: sessions.drift(agent.id()),
        }
    }
}
