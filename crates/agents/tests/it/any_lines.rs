//! The corpus of the fuzz target `agent_lines`, and mutations of it.

#[path = "../../../../fuzz/rules/agent_lines.rs"]
mod agent_lines;
#[test]
fn arbitrary_lines_become_ordered_events() {
    testkit::try_mutations("agent_lines", agent_lines::agent_lines);
}
