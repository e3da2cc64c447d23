//! The registry of agents that can be started, with their programs on the host.
//!
//! Installed versions are looked up at each call, so a running server finds a newly installed agent.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use agents::{Agent, NODE, node_folder, versions_folder};

/// An agent and the path of its program.
#[derive(Clone)]
pub struct RegisteredAgent {
    /// The adapter of the agent.
    pub agent: &'static dyn Agent,
    /// The installed version; `None` for an agent that is part of this program.
    pub version: Option<String>,
    /// The folder or program of the agent on the host.
    pub program: PathBuf,
    /// The Node program on the host, if installed.
    pub node: Option<PathBuf>,
}

/// The agents that can be started on this host.
#[derive(Clone, Default)]
pub struct AgentRegistry {
    built_in: Vec<(&'static dyn Agent, PathBuf)>,
    installed: Option<PathBuf>,
}

impl AgentRegistry {
    /// Adds an agent that needs no installation. Replaces an agent with the same name.
    #[must_use]
    pub fn with(mut self, agent: &'static dyn Agent, program: PathBuf) -> Self {
        self.built_in.retain(|(other, _)| other.id() != agent.id());
        self.built_in.push((agent, program));
        self
    }

    /// Adds all agents that are installed below `root`, now or later.
    #[must_use]
    pub fn with_installed(mut self, root: PathBuf) -> Self {
        self.installed = Some(root);
        self
    }

    /// Returns the agent with that name and version. Without a version, returns the tested version, else the newest.
    pub fn find(&self, name: &str, version: Option<&str>) -> Option<RegisteredAgent> {
        let built_in = self.built_in.iter().find(|(agent, _)| agent.id() == name);
        if let Some((agent, program)) = built_in.filter(|_| version.is_none()) {
            return Some(RegisteredAgent { agent: *agent, version: None, program: program.clone(), node: None });
        }
        let (root, agent) = (self.installed.as_ref()?, agents::by_name(name)?);
        let pinned = agent.package()?.version;
        let installed = versions(&root.join(versions_folder(name)));
        let chosen = match version {
            Some(version) => installed.into_iter().find(|installed| installed == version),
            None => installed.iter().find(|installed| *installed == pinned).or_else(|| installed.first()).cloned(),
        }?;
        let program = root.join(versions_folder(name)).join(&chosen);
        Some(RegisteredAgent { agent, version: Some(chosen), program, node: node(root) })
    }

    /// Returns every known agent in display order, with its installation if there is one.
    pub fn all(&self) -> Vec<(&'static dyn Agent, Option<RegisteredAgent>)> {
        agents::all().map(|agent| (agent, self.find(agent.id(), None))).collect()
    }
}

/// Returns the versions in a folder, newest first. Incomplete installations start with a dot and are skipped.
fn versions(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_by_key(|name| Reverse(numbers(name)));
    names
}

/// Returns the numbers of a version, by which 1.10 is newer than 1.9.
fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-']).map(|part| part.parse().unwrap_or_default()).collect()
}

fn node(root: &Path) -> Option<PathBuf> {
    let folder = root.join(node_folder());
    let pinned = folder.join(NODE.version);
    let newest = || Some(folder.join(versions(&folder).first()?));
    let chosen = if pinned.is_dir() { pinned } else { newest()? };
    Some(chosen.join("node_modules").join(NODE.program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(installed: &[&str], requested: Option<&str>, expected: Option<&str>) {
        let root = tempfile::tempdir().unwrap();
        for version in installed {
            std::fs::create_dir_all(root.path().join("agents/claude").join(version)).unwrap();
        }
        let registry = AgentRegistry::default().with_installed(root.path().to_owned());
        let found = registry.find("claude", requested).and_then(|registered| registered.version);
        assert_eq!(found.as_deref(), expected, "{requested:?} of {installed:?}");
    }

    #[test]
    fn tested_version_is_the_default() {
        let pinned = agents::by_name("claude").unwrap().package().unwrap().version;
        check(&[], None, None);
        check(&["9.9.9", pinned], None, Some(pinned));
        check(&["9.9.9", pinned], Some("9.9.9"), Some("9.9.9"));
        check(&["1.9.0", "1.10.0"], None, Some("1.10.0"));
        check(&["1.9.0"], Some("1.10.0"), None);
        check(&[".9.9.9-half"], None, None);
    }

    #[test]
    fn built_in_agent_has_no_version() {
        let registry = AgentRegistry::default().with(&agents::MockAgent, "/bin/viv".into());
        assert!(registry.find("mock", None).is_some_and(|registered| registered.version.is_none()));
        assert!(registry.find("mock", Some("1.0.0")).is_none());
        assert!(registry.find("claude", None).is_none());
        assert_eq!(registry.all().iter().filter(|(_, registered)| registered.is_some()).count(), 1);
    }
}
