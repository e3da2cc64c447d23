//! Capabilities observed in the scenarios, and their comparison with the table.
//!
//! Capabilities are collected while the scenarios run and compared at the end. `VIV_TEST_WRITE_CAPABILITIES=1` writes
//! the table instead, for review.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use agents::Capabilities;
use base::lock;
use protocol::{ContentPart, Event, EventBody, EventSource, ItemKind, ItemRole};

use crate::model_script::{COMMAND_OUTPUT, MCP_OUTPUT};
use crate::tested_agent::TestedAgent;

static OBSERVED: Mutex<BTreeMap<&'static str, Capabilities>> = Mutex::new(BTreeMap::new());

/// Collects the capabilities that an agent showed in a session.
pub(crate) fn note(agent: &'static str, events: &[Event]) {
    let mut observed = lock(&OBSERVED);
    let can = observed.entry(agent).or_default();
    for event in events {
        observe(can, event);
    }
}

/// Records that an image reached the agent's model.
pub(crate) fn note_image(agent: &'static str) {
    lock(&OBSERVED).entry(agent).or_default().images = true;
}

/// Records that the agent planned without changing anything.
pub(crate) fn note_plan(agent: &'static str) {
    lock(&OBSERVED).entry(agent).or_default().plan_mode = true;
}

/// Checks that the tested version of an agent sends no unknown fields or messages. The mock sends some on purpose.
#[track_caller]
pub(crate) fn check_understood(agent: &str, events: &[Event]) {
    if agent == "mock" {
        return;
    }
    let unknown: Vec<_> = events
        .iter()
        .filter(|event| match &event.draft.body {
            EventBody::ItemCompleted(done) => done.item.kind == ItemKind::Unknown,
            EventBody::AgentUnparsed(_) => true,
            _ => false,
        })
        .collect();
    assert!(unknown.is_empty(), "{agent} sent unknown fields or messages: {unknown:#?}");
}

/// Returns whether the table is written instead of compared, even if a scenario failed.
pub(crate) fn is_update_requested() -> bool {
    std::env::var_os("VIV_TEST_WRITE_CAPABILITIES").is_some()
}

/// Compares the observed capabilities with the table, or writes the table.
pub(crate) fn compare_or_write(tested_agents: &[TestedAgent]) -> ExitCode {
    let observed = lock(&OBSERVED);
    if is_update_requested() {
        let all = agents::all().map(agents::Agent::id);
        let table: BTreeMap<_, _> =
            all.map(|id| (id, observed.get(id).copied().unwrap_or_else(|| Capabilities::of(id)))).collect();
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../crates/agents/capabilities.json");
        std::fs::write(path, serde_json::to_string_pretty(&table).unwrap() + "\n").unwrap();
        return ExitCode::SUCCESS;
    }
    let differ: Vec<_> =
        tested_agents.iter().filter(|agent| observed[agent.name] != Capabilities::of(agent.name)).collect();
    for agent in &differ {
        let (now, expected) = (observed[agent.name], Capabilities::of(agent.name));
        eprintln!(
            "observed for {}:
        {now:#?}
        in crates/agents/capabilities.json:
        {expected:#?}",
            agent.name
        );
    }
    if differ.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn observe(can: &mut Capabilities, event: &Event) {
    let native = !event.draft.synthetic && event.draft.source == EventSource::Agent;
    can.session_lifecycle |= event.draft.native_session_id.is_some();
    match &event.draft.body {
        EventBody::PermissionRequested(_) => can.permissions = true,
        EventBody::QuestionRequested(_) => can.questions = true,
        EventBody::Error(_) if native => can.error_events = true,
        EventBody::ItemDelta(_) if native => can.streaming_deltas = true,
        EventBody::ItemStarted(started) if native && started.item.role != Some(ItemRole::User) => {
            can.item_started = true;
        }
        EventBody::ItemCompleted(completed) => {
            let item = &completed.item;
            can.tool_calls |= item.kind == ItemKind::ToolCall;
            can.tool_results |= item.kind == ItemKind::ToolResult;
            for part in &item.content {
                observe_part(can, part, item.role);
            }
        }
        _ => {}
    }
}

fn observe_part(can: &mut Capabilities, part: &ContentPart, role: Option<ItemRole>) {
    match part {
        ContentPart::Text { text } if role == Some(ItemRole::Assistant) => {
            can.text_messages = true;
            // The model repeats the prompt, which names the attached file.
            can.file_attachments |= text.contains("notes.txt");
        }
        // The mock simulates MCP tools with these names.
        ContentPart::ToolCall { name, .. } => can.mcp_tools |= name.starts_with("mcp__"),
        ContentPart::ToolResult { output, .. } => {
            can.command_execution |= output.contains(COMMAND_OUTPUT);
            can.mcp_tools |= output.contains(MCP_OUTPUT);
        }
        ContentPart::FileRef { diff: Some(_), .. } => can.file_changes = true,
        ContentPart::Reasoning { .. } => can.reasoning = true,
        ContentPart::Status { .. } => can.status = true,
        _ => {}
    }
}
