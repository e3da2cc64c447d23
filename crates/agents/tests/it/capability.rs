//! Documents agree with the table of capabilities.

use agents::{Agent, Capabilities, LaunchContext, all};
use serde_json::Value;

/// Returns the table for README: a row for each capability, a column for each agent.
fn rendered() -> String {
    let columns: Vec<(&str, Value)> =
        all().map(|agent| (agent.id(), serde_json::to_value(Capabilities::of(agent.id())).unwrap())).collect();
    let names: Vec<&str> = columns.iter().map(|(id, _)| *id).collect();
    let mut rows = vec![format!("| | {} |", names.join(" | ")), format!("| --- |{}", " :-: |".repeat(names.len()))];
    for flag in columns[0].1.as_object().unwrap().keys() {
        let marks: Vec<&str> = columns.iter().map(|(_, can)| if can[flag] == true { "✓" } else { "–" }).collect();
        rows.push(format!("| {flag} | {} |", marks.join(" | ")));
    }
    rows.join("\n") + "\n"
}

#[test]
fn readme_matches_the_capability_table() {
    let readme = include_str!("../../../../README.md");
    let expected = rendered();
    assert!(readme.contains(&expected), "README.md must hold this table:\n\n{expected}");
}

#[test]
fn every_agent_was_tested() {
    for agent in all() {
        assert!(Capabilities::of(agent.id()).text_messages, "{} was never run", agent.id());
    }
    assert_eq!(Capabilities::of("nobody"), Capabilities::default());
}

/// Returns the table of permission modes for `docs/agents.md`.
fn rendered_modes() -> String {
    let modes = ["default", "plan", "acceptEdits", "bypass"];
    let mut rows = vec![format!("| | {} |", modes.join(" | ")), format!("| --- |{}", " :-: |".repeat(modes.len()))];
    for agent in all() {
        let marks = modes.map(|mode| if keeps(agent, mode) { "✓" } else { "–" });
        rows.push(format!("| {} | {} |", agent.id(), marks.join(" | ")));
    }
    rows.join("\n") + "\n"
}

fn keeps(agent: &dyn Agent, mode: &str) -> bool {
    let (permission_mode, node) = (Some(mode.to_owned()), Some("/node".into()));
    agent.plan(&LaunchContext { permission_mode, node, ..LaunchContext::default() }).is_ok()
}

#[test]
fn documented_permission_modes_match_the_code() {
    let page = include_str!("../../../../docs/agents.md");
    let expected = rendered_modes();
    assert!(page.contains(&expected), "docs/agents.md must hold this table:\n\n{expected}");
}
