//! The agents there are: one row each.

use crate::{Agent, ClaudeAgent, CodexAgent, CopilotAgent, GeminiAgent, MockAgent, OpencodeAgent, PiAgent, QwenAgent};

/// Every agent that can be started.
static AGENTS: &[&dyn Agent] =
    &[&MockAgent, &ClaudeAgent, &CodexAgent, &GeminiAgent, &OpencodeAgent, &CopilotAgent, &QwenAgent, &PiAgent];

/// Agents that people ask for and that cannot be run like the others.
pub static UNSUPPORTED: &[UnsupportedAgent] = &[UnsupportedAgent {
    id: "amp",
    reason: "its loop and its models run on its vendor's server; what is installed only executes tools, \
             so neither gateway nor budget would see a call",
}];

/// An agent that we know and do not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedAgent {
    /// Its name.
    pub id: &'static str,
    /// Why, in a sentence.
    pub reason: &'static str,
}

/// Every agent that can be started, in the order they are shown.
pub fn all() -> impl Iterator<Item = &'static dyn Agent> {
    AGENTS.iter().copied()
}

/// The agent of that name.
pub fn by_name(name: &str) -> Option<&'static dyn Agent> {
    all().find(|agent| agent.id() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_unique() {
        for agent in all() {
            assert_eq!(all().filter(|other| other.id() == agent.id()).count(), 1);
            assert!(by_name(agent.id()).is_some());
            assert!(UNSUPPORTED.iter().all(|other| other.id != agent.id()));
        }
        assert!(by_name("amp").is_none());
        assert!(by_name("").is_none());
    }
}
