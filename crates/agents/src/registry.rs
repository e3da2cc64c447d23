//! The list of supported agents.

use crate::{Agent, ClaudeAgent, CodexAgent, CopilotAgent, GeminiAgent, MockAgent, OpencodeAgent, PiAgent, QwenAgent};

/// All supported agents, in display order.
static AGENTS: &[&dyn Agent] =
    &[&MockAgent, &ClaudeAgent, &CodexAgent, &GeminiAgent, &OpencodeAgent, &CopilotAgent, &QwenAgent, &PiAgent];

/// Known agents that cannot be supported.
pub static UNSUPPORTED: &[UnsupportedAgent] = &[UnsupportedAgent {
    id: "amp",
    reason: "its loop and its models run on its vendor's server; what is installed only executes tools, \
             so neither gateway nor budget would see a call",
}];

/// A known agent that cannot be supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedAgent {
    /// The agent's name.
    pub id: &'static str,
    /// The reason, in a sentence.
    pub reason: &'static str,
}

/// Returns all supported agents, in display order.
pub fn all() -> impl Iterator<Item = &'static dyn Agent> {
    AGENTS.iter().copied()
}

/// Returns the agent with this name.
pub fn by_name(name: &str) -> Option<&'static dyn Agent> {
    all().find(|agent| agent.id() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_names_are_unique_and_found() {
        for agent in all() {
            assert_eq!(all().filter(|other| other.id() == agent.id()).count(), 1);
            assert!(by_name(agent.id()).is_some());
            assert!(UNSUPPORTED.iter().all(|other| other.id != agent.id()));
        }
        assert!(by_name("amp").is_none());
        assert!(by_name("").is_none());
    }
}
