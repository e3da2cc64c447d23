//! The response bodies about agents: their list, permission modes and models.

use std::collections::BTreeMap;

use agents::{Agent, Capabilities, LaunchContext, PermissionMode};
use serde::Serialize;
use session::{Drift, RegisteredAgent, SessionError, Sessions};
use utoipa::ToSchema;

/// Response of `GET /v1/agents`.
#[derive(Serialize, ToSchema)]
pub(crate) struct AgentList {
    agents: Vec<AgentInfo>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AgentInfo {
    id: &'static str,
    installed: bool,
    /// Always true: the gateway holds the keys, and agents need none.
    credentials_available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    capabilities: Capabilities,
    /// Number of outputs that `viv` did not understand, over all sessions, by version of the agent.
    drift: BTreeMap<String, Drift>,
}

impl AgentList {
    pub(crate) fn of(sessions: &Sessions) -> Result<Self, SessionError> {
        let (known, mut drift) = (sessions.agents().all().into_iter(), sessions.drift()?);
        let info = |(agent, enlisted): (&'static dyn Agent, _)| {
            AgentInfo::of(agent, enlisted, drift.remove(agent.id()).unwrap_or_default())
        };
        Ok(Self { agents: known.map(info).collect() })
    }
}

impl AgentInfo {
    fn of(agent: &dyn Agent, enlisted: Option<RegisteredAgent>, drift: BTreeMap<String, Drift>) -> Self {
        let path = enlisted.as_ref().and_then(|enlisted| enlisted.program.to_str().map(str::to_owned));
        Self {
            id: agent.id(),
            installed: enlisted.is_some(),
            credentials_available: true,
            version: enlisted.and_then(|enlisted| enlisted.version),
            path,
            capabilities: Capabilities::of(agent.id()),
            drift,
        }
    }
}

/// Response of `GET /v1/agents/{agent}/modes`.
#[derive(Serialize, ToSchema)]
pub(crate) struct ModeList {
    modes: Vec<ModeInfo>,
}

#[derive(Serialize, ToSchema)]
struct ModeInfo {
    id: &'static str,
    name: &'static str,
    description: &'static str,
}

impl ModeList {
    /// Returns the modes for which `agent` can make a launch plan.
    pub(crate) fn of(agent: &dyn Agent) -> Self {
        let supports = |mode: PermissionMode| {
            // The mode does not depend on Node, so the plan assumes that Node is installed.
            let node = Some("/node".into());
            let permission_mode = Some(mode.as_str().to_owned());
            agent.plan(&LaunchContext { permission_mode, node, ..LaunchContext::default() }).is_ok()
        };
        let usual = ModeInfo { id: "build", name: "Build", description: "Works as its permission mode allows." };
        let plan = ModeInfo { id: "plan", name: "Plan", description: "Reads and plans, but changes nothing." };
        Self { modes: std::iter::once(usual).chain(supports(PermissionMode::Plan).then_some(plan)).collect() }
    }
}

/// Response of `GET /v1/agents/{agent}/models`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelList {
    models: Vec<ModelInfo>,
    /// The first model, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_model: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ModelInfo {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Always absent: no agent has model variants.
    #[serde(skip_serializing_if = "Option::is_none")]
    variants: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_variant: Option<String>,
}

impl ModelList {
    pub(crate) fn of(models: Vec<String>) -> Self {
        let info = |id: String| ModelInfo { id, name: None, variants: None, default_variant: None };
        Self { default_model: models.first().cloned(), models: models.into_iter().map(info).collect() }
    }
}
