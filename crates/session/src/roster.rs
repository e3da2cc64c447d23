//! The agents that can be started here, each with its program on the host.

use std::path::PathBuf;

use agents::Agent;

/// One agent and where its program is.
#[derive(Clone, Copy)]
pub struct Enlisted<'a> {
    /// How it is started and understood.
    pub agent: &'static dyn Agent,
    /// Its program on the host.
    pub program: &'a PathBuf,
}

/// The agents that can be started here.
#[derive(Clone, Default)]
pub struct Roster(Vec<(&'static dyn Agent, PathBuf)>);

impl Roster {
    /// Adds an agent; a second one of the same name takes the place of the first.
    #[must_use]
    pub fn with(mut self, agent: &'static dyn Agent, program: PathBuf) -> Self {
        self.0.retain(|(other, _)| other.id() != agent.id());
        self.0.push((agent, program));
        self
    }

    /// All of them, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = Enlisted<'_>> {
        self.0.iter().map(|(agent, program)| Enlisted { agent: *agent, program })
    }

    /// The agent of that name.
    pub fn find(&self, name: &str) -> Option<Enlisted<'_>> {
        self.iter().find(|enlisted| enlisted.agent.id() == name)
    }
}
