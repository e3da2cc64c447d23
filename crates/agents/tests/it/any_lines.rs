//! Any lines of any agent: the corpus of the fuzz target `agent_lines`, and what is like it.

#[path = "../../../../fuzz/rules/agent_lines.rs"]
mod agent_lines;
#[path = "../../../../tests/mutation.rs"]
mod mutation;

#[test]
fn whatever_an_agent_prints_becomes_events_in_order() {
    mutation::check("agent_lines", agent_lines::agent_lines);
}
