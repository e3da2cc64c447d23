//! The corpus of the fuzz target `agent_lines`, and mutations of it.

#[path = "../../../../fuzz/rules/agent_lines.rs"]
mod agent_lines;
#[path = "../../../../tests/mutation.rs"]
mod mutation;

#[test]
fn arbitrary_lines_become_ordered_events() {
    mutation::check("agent_lines", agent_lines::agent_lines);
}
