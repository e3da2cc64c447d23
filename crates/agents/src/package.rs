//! What must be installed for an agent, and how it is started from there.

use crate::{AgentError, LaunchContext, Mount};

/// Where an agent's package is inside the sandbox.
const INSTALLED: &str = "/opt/agent";
/// Where Node is inside the sandbox.
const NODE: &str = "/opt/node/bin/node";

/// A pinned package of the npm registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub npm: &'static str,
    /// The version whose protocol was measured.
    pub version: &'static str,
    /// The program, below `node_modules`.
    pub program: &'static str,
    /// Whether the program is JavaScript and needs Node to run it.
    pub needs_node: bool,
}

impl Package {
    /// The command line and the mounts that start it with `arguments`.
    pub(crate) fn start(
        &self,
        agent: &'static str,
        context: &LaunchContext,
        arguments: &[&str],
    ) -> Result<(Vec<String>, Vec<Mount>), AgentError> {
        let mut mounts = vec![Mount { source: context.program.clone(), target: INSTALLED.to_owned() }];
        let mut argv = Vec::new();
        if self.needs_node {
            let source = context.node.clone().ok_or(AgentError::NodeMissing(agent))?;
            mounts.push(Mount { source, target: NODE.to_owned() });
            argv.push(NODE.to_owned());
        }
        argv.push(format!("{INSTALLED}/node_modules/{}", self.program));
        argv.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        Ok((argv, mounts))
    }
}
