//! What documents say of the agents is what the table says.

use agents::{Capabilities, all};
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
