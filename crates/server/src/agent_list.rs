//! What clients are told about the agents that can be started.

use agents::{Agent, Capabilities};
use serde::Serialize;
use session::{Enlisted, Roster};
use utoipa::ToSchema;

/// `GET /v1/agents`.
#[derive(Serialize, ToSchema)]
pub(crate) struct AgentList {
    agents: Vec<AgentInfo>,
}

#[derive(Serialize, ToSchema)]
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
}

impl AgentList {
    pub(crate) fn of(roster: &Roster) -> Self {
        Self { agents: roster.all().into_iter().map(AgentInfo::of).collect() }
    }
}

impl AgentInfo {
    fn of((agent, enlisted): (&dyn Agent, Option<Enlisted>)) -> Self {
        let path = enlisted.as_ref().and_then(|enlisted| enlisted.program.to_str().map(str::to_owned));
        Self {
            id: agent.id(),
            installed: enlisted.is_some(),
            credentials_available: true,
            version: enlisted.and_then(|enlisted| enlisted.version),
            path,
            capabilities: Capabilities::of(agent.id()),
        }
    }
}
