//! What clients are told about the agents that can be started.

use agents::Agent;
use serde::Serialize;
use session::{Enlisted, Roster};

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
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Capabilities {
    plan_mode: bool,
    permissions: bool,
    questions: bool,
    tool_calls: bool,
    tool_results: bool,
    text_messages: bool,
    images: bool,
    file_attachments: bool,
    session_lifecycle: bool,
    error_events: bool,
    reasoning: bool,
    status: bool,
    command_execution: bool,
    file_changes: bool,
    mcp_tools: bool,
    streaming_deltas: bool,
    item_started: bool,
    shared_process: bool,
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

impl Capabilities {
    /// What the conformance runs showed; an agent that was not run can nothing.
    fn of(agent: &str) -> Self {
        match agent {
            "mock" => Self {
                plan_mode: true,
                permissions: true,
                questions: true,
                tool_calls: true,
                tool_results: true,
                text_messages: true,
                images: true,
                file_attachments: true,
                session_lifecycle: true,
                error_events: true,
                reasoning: true,
                status: true,
                command_execution: true,
                file_changes: true,
                mcp_tools: true,
                streaming_deltas: true,
                item_started: true,
                shared_process: false,
            },
            _ => Self::default(),
        }
    }
}
