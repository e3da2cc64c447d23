//! The agents that can be started here, each with its program on the host.

use std::path::PathBuf;

use agents::Agent;

/// One agent and where its program is.
#[derive(Clone, Copy)]
pub struct Enlisted<'a> {
    /// How it is started and understood.
    pub agent: &'static dyn Agent,
    /// What is installed of it on the host.
    pub program: &'a PathBuf,
    /// Node's program on the host.
    pub node: Option<&'a PathBuf>,
}

/// The agents that can be started here.
#[derive(Clone, Default)]
pub struct Roster {
    agents: Vec<(&'static dyn Agent, PathBuf)>,
    node: Option<PathBuf>,
}

impl Roster {
    /// Adds an agent; a second one of the same name takes the place of the first.
    #[must_use]
    pub fn with(mut self, agent: &'static dyn Agent, program: PathBuf) -> Self {
        self.agents.retain(|(other, _)| other.id() != agent.id());
        self.agents.push((agent, program));
        self
    }

    /// Says where Node is, for the agents that need it.
    #[must_use]
    pub fn with_node(mut self, node: PathBuf) -> Self {
        self.node = Some(node);
        self
    }

    /// All of them, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = Enlisted<'_>> {
        let node = self.node.as_ref();
        self.agents.iter().map(move |(agent, program)| Enlisted { agent: *agent, program, node })
    }

    /// The agent of that name.
    pub fn find(&self, name: &str) -> Option<Enlisted<'_>> {
        self.iter().find(|enlisted| enlisted.agent.id() == name)
    }
}
