//! What the agents showed, and the table that says so.
//!
//! Noted while the scenarios run, compared when all have passed. `VIV_TEST_WRITE_CAPABILITIES=1` writes the
//! table instead; a review shows what changed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use agents::Capabilities;
use base::lock;
use protocol::{ContentPart, Event, EventBody, EventSource, ItemKind, ItemRole};

use crate::tested_agent::TestedAgent;
use crate::model_script::{COMMAND_OUTPUT, SERVED_OUTPUT};

static SHOWN: Mutex<BTreeMap<&'static str, Capabilities>> = Mutex::new(BTreeMap::new());

/// Notes what an agent showed in a session.
pub(crate) fn note(agent: &'static str, events: &[Event]) {
    let mut shown = lock(&SHOWN);
    let can = shown.entry(agent).or_default();
    for event in events {
        see(can, event);
    }
}

/// Notes that a picture reached the agent's model.
pub(crate) fn note_picture(agent: &'static str) {
    lock(&SHOWN).entry(agent).or_default().images = true;
}

/// Notes that the agent planned, and that nothing was changed meanwhile.
pub(crate) fn note_plan(agent: &'static str) {
    lock(&SHOWN).entry(agent).or_default().plan_mode = true;
}

/// What the measured version of an agent says is understood, field by field. The mock says odd things on purpose.
#[track_caller]
pub(crate) fn check_understood(agent: &str, events: &[Event]) {
    if agent == "mock" {
        return;
    }
    let odd: Vec<_> = events
        .iter()
        .filter(|event| match &event.draft.body {
            EventBody::ItemCompleted(done) => done.item.kind == ItemKind::Unknown,
            EventBody::AgentUnparsed(_) => true,
            _ => false,
        })
        .collect();
    assert!(odd.is_empty(), "{agent} said what nobody here knows: {odd:#?}");
}

/// Whether the table is written instead of compared; also where a scenario failed, for a person to look at.
pub(crate) fn is_to_be_written() -> bool {
    std::env::var_os("VIV_TEST_WRITE_CAPABILITIES").is_some()
}

/// Compares what was shown with the table, or writes it.
pub(crate) fn settle(tested_agents: &[TestedAgent]) -> ExitCode {
    let shown = lock(&SHOWN);
    if is_to_be_written() {
        let all = agents::all().map(agents::Agent::id);
        let table: BTreeMap<_, _> =
            all.map(|id| (id, shown.get(id).copied().unwrap_or_else(|| Capabilities::of(id)))).collect();
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../crates/agents/capabilities.json");
        std::fs::write(path, serde_json::to_string_pretty(&table).unwrap() + "\n").unwrap();
        return ExitCode::SUCCESS;
    }
    let differ: Vec<_> =
        tested_agents.iter().filter(|agent| shown[agent.name] != Capabilities::of(agent.name)).collect();
    for agent in &differ {
        let (now, told) = (shown[agent.name], Capabilities::of(agent.name));
        eprintln!("{} showed\n{now:#?}\nand crates/agents/capabilities.json says\n{told:#?}", agent.name);
    }
    if differ.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn see(can: &mut Capabilities, event: &Event) {
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
                see_part(can, part, item.role);
            }
        }
        _ => {}
    }
}

fn see_part(can: &mut Capabilities, part: &ContentPart, role: Option<ItemRole>) {
    match part {
        ContentPart::Text { text } if role == Some(ItemRole::Assistant) => {
            can.text_messages = true;
            // The model was told of the file that went with the words.
            can.file_attachments |= text.contains("notes.txt");
        }
        // So the mock calls them, which takes no servers: it shows how a call looks.
        ContentPart::ToolCall { name, .. } => can.mcp_tools |= name.starts_with("mcp__"),
        ContentPart::ToolResult { output, .. } => {
            can.command_execution |= output.contains(COMMAND_OUTPUT);
            can.mcp_tools |= output.contains(SERVED_OUTPUT);
        }
        ContentPart::FileRef { diff: Some(_), .. } => can.file_changes = true,
        ContentPart::Reasoning { .. } => can.reasoning = true,
        ContentPart::Status { .. } => can.status = true,
        _ => {}
    }
}
