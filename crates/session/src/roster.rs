//! The agents that can be started here, each with its program on the host.
//!
//! What is installed is looked up when it is asked for: an agent that was installed a moment ago can be
//! started at once, also by a server that runs for weeks.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use agents::{Agent, NODE, node_folder, versions_folder};

/// One agent and where its program is.
#[derive(Clone)]
pub struct RegisteredAgent {
    /// How it is started and understood.
    pub agent: &'static dyn Agent,
    /// The version that is installed; none for an agent that is part of this program.
    pub version: Option<String>,
    /// What is installed of it on the host.
    pub program: PathBuf,
    /// Node's program on the host, where it is installed.
    pub node: Option<PathBuf>,
}

/// The agents that can be started here.
#[derive(Clone, Default)]
pub struct AgentRegistry {
    built_in: Vec<(&'static dyn Agent, PathBuf)>,
    installed: Option<PathBuf>,
}

impl AgentRegistry {
    /// Adds an agent that needs no installation; a second one of the same name takes the place of the first.
    #[must_use]
    pub fn with(mut self, agent: &'static dyn Agent, program: PathBuf) -> Self {
        self.built_in.retain(|(other, _)| other.id() != agent.id());
        self.built_in.push((agent, program));
        self
    }

    /// Adds what is installed below `root`, now and later.
    #[must_use]
    pub fn with_installed(mut self, root: PathBuf) -> Self {
        self.installed = Some(root);
        self
    }

    /// The agent of that name, in that version or in the one that is taken when nobody says: the version
    /// we measured, else the newest.
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

    /// Every agent there is, whether it can be started here or not, in the order they are shown.
    pub fn all(&self) -> Vec<(&'static dyn Agent, Option<RegisteredAgent>)> {
        agents::all().map(|agent| (agent, self.find(agent.id(), None))).collect()
    }
}

/// The versions in a folder, newest first. What an installation that broke off left begins with a dot.
fn versions(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_by_key(|name| Reverse(numbers(name)));
    names
}

/// What orders versions: their numbers, so that 1.10 is newer than 1.9.
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
    fn check(installed: &[&str], asked: Option<&str>, expected: Option<&str>) {
        let root = tempfile::tempdir().unwrap();
        for version in installed {
            std::fs::create_dir_all(root.path().join("agents/claude").join(version)).unwrap();
        }
        let roster = AgentRegistry::default().with_installed(root.path().to_owned());
        let found = roster.find("claude", asked).and_then(|enlisted| enlisted.version);
        assert_eq!(found.as_deref(), expected, "{asked:?} of {installed:?}");
    }

    #[test]
    fn the_version_we_measured_is_taken_unless_another_is_asked_for() {
        let pinned = agents::by_name("claude").unwrap().package().unwrap().version;
        check(&[], None, None);
        check(&["9.9.9", pinned], None, Some(pinned));
        check(&["9.9.9", pinned], Some("9.9.9"), Some("9.9.9"));
        check(&["1.9.0", "1.10.0"], None, Some("1.10.0"));
        check(&["1.9.0"], Some("1.10.0"), None);
        check(&[".9.9.9-half"], None, None);
    }

    #[test]
    fn an_agent_that_is_part_of_the_program_has_no_version() {
        let roster = AgentRegistry::default().with(&agents::MockAgent, "/bin/viv".into());
        assert!(roster.find("mock", None).is_some_and(|enlisted| enlisted.version.is_none()));
        assert!(roster.find("mock", Some("1.0.0")).is_none());
        assert!(roster.find("claude", None).is_none());
        assert_eq!(roster.all().iter().filter(|(_, enlisted)| enlisted.is_some()).count(), 1);
    }
}
