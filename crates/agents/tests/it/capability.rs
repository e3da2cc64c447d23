//! What documents say of the agents is what the table says.

use agents::{Agent, Capabilities, LaunchContext, all};
use serde_json::Value;

/// The table as README shows it: a row a capability, a column an agent.
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
fn readme_says_what_the_table_says() {
    let readme = include_str!("../../../../README.md");
    let expected = rendered();
    assert!(readme.contains(&expected), "README.md must hold this table:\n\n{expected}");
}

#[test]
fn every_agent_that_was_run_speaks() {
    for agent in all() {
        assert!(Capabilities::of(agent.id()).text_messages, "{} was never run", agent.id());
    }
    assert_eq!(Capabilities::of("nobody"), Capabilities::default());
}

/// The modes that every agent keeps, as `docs/agents.md` shows them.
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
fn the_page_of_agents_says_which_modes_they_keep() {
    let page = include_str!("../../../../docs/agents.md");
    let expected = rendered_modes();
    assert!(page.contains(&expected), "docs/agents.md must hold this table:\n\n{expected}");
}
