//! Launch plans: the program, environment and files to start inside the sandbox.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::{HOME, WORKSPACE};

use crate::{Dialogue, McpServers, NpmPackage};

/// One kind of agent.
pub trait Agent: Send + Sync {
    /// Returns the name in the API and on the command line.
    fn id(&self) -> &'static str;
    /// Returns the package to install; `None` for the mock.
    fn package(&self) -> Option<&'static NpmPackage>;
    /// Returns the directory inside the sandbox for skills, one subdirectory each; `None` if skills are not supported.
    fn skill_root(&self) -> Option<&'static str> {
        None
    }
    /// Returns whether MCP servers can be configured per session.
    fn takes_mcp(&self) -> bool {
        false
    }
    /// Returns the launch plan for one session. Fails if a setting is not supported.
    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError>;
    /// Returns a new protocol handler for one process of this agent.
    ///
    /// Its events may be incomplete or out of order; wrap it in a [`NormalizedDialogue`](crate::NormalizedDialogue).
    fn new_dialogue(&self, context: &LaunchContext) -> Box<dyn Dialogue>;
}

/// Settings of the session that an agent is started for.
#[derive(Debug, Clone, Default)]
pub struct LaunchContext {
    /// The number of this start of the session, from 1. It keeps ids of a resumed session unique.
    pub epoch: u32,
    /// URL of the gateway inside the sandbox, without `/v1`.
    pub gateway_url: String,
    /// The session token for the gateway.
    pub token: String,
    /// The requested model.
    pub model: Option<String>,
    /// The agent's own mode.
    pub agent_mode: Option<String>,
    /// `default`, `plan`, `acceptEdits` or `bypass`.
    pub permission_mode: Option<String>,
    /// The agent's own session id, to resume that session.
    pub native_session_id: Option<String>,
    /// The installed program on the host, mounted read-only: `viv` for the mock, otherwise the directory that contains
    /// `node_modules`.
    pub program: PathBuf,
    /// MCP servers of this session.
    pub mcp: McpServers,
    /// The Node binary on the host, for agents whose [`NpmPackage`] needs it.
    pub node: Option<PathBuf>,
    /// The path of the workspace inside the sandbox; `None` for `/workspace`.
    pub workspace: Option<String>,
}

impl LaunchContext {
    /// Returns the directory in which the agent works. A link to it would not do: agents compare paths with this one to see
    /// whether a file is in the project.
    pub(crate) fn workdir(&self) -> String {
        self.workspace.clone().unwrap_or_else(|| WORKSPACE.to_owned())
    }
}

/// Returns the common environment of all agents with `extra` variables added.
pub(crate) fn environment(extra: &[(&str, Option<&str>)]) -> BTreeMap<String, String> {
    let common = [("HOME", Some(HOME)), ("PATH", Some("/usr/local/bin:/usr/bin:/bin")), ("LANG", Some("C.UTF-8"))];
    let set = common.iter().chain(extra).filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?.to_owned())));
    set.collect()
}

/// The program to start inside the sandbox, with everything it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchPlan {
    /// Program and arguments inside the sandbox.
    pub argv: Vec<String>,
    /// The complete environment.
    pub env: BTreeMap<String, String>,
    /// Files to create before the start.
    pub files: Vec<PlacedFile>,
    /// Read-only mounts of host paths.
    pub mounts: Vec<ReadOnlyMount>,
    /// Working directory inside the sandbox.
    pub workdir: String,
    /// Directories of the agent's home that are saved, so that a session can continue after a restart.
    pub saved_home: SavedHome,
}

/// The part of an agent's home that is saved between two starts of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SavedHome {
    /// Directories, relative to the home.
    pub folders: &'static [&'static str],
    /// Renaming of files when they are restored, as an expression for tar's `--transform`.
    pub rename: Option<&'static str>,
}

impl SavedHome {
    /// Returns these directories without renaming.
    pub(crate) const fn of(folders: &'static [&'static str]) -> Self {
        Self { folders, rename: None }
    }
}

/// A file created for one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedFile {
    /// Absolute path inside the sandbox.
    pub path: String,
    /// The content.
    pub content: String,
}

/// A host path that is mounted read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnlyMount {
    /// Path on the host.
    pub source: PathBuf,
    /// Path inside the sandbox.
    pub target: String,
}

/// The reason why an agent cannot be started with these settings.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent does not support the permission mode.
    #[error("agent `{agent}` does not support permission mode `{mode}`")]
    ModeNotSupported {
        /// The agent.
        agent: &'static str,
        /// The requested mode.
        mode: String,
    },
    /// The agent does not support the transport of an MCP server.
    #[error("agent `{agent}` cannot use MCP server `{server}`: transport `{transport}` is not supported")]
    McpTransport {
        /// The agent.
        agent: &'static str,
        /// The name of the server.
        server: String,
        /// The unsupported transport.
        transport: &'static str,
    },
    /// The agent has no terminal UI.
    #[error("agent `{0}` has no terminal UI")]
    NoTerminalUi(&'static str),
    /// The agent needs Node, which is not installed.
    #[error("agent `{0}` needs Node, which is not installed")]
    NodeMissing(&'static str),
}
