//! What to start inside the sandbox, as data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::HOME;

use crate::{Dialogue, McpServers, NpmPackage};

/// One kind of agent.
pub trait Agent: Send + Sync {
    /// Its name in the API and on the command line.
    fn id(&self) -> &'static str;
    /// What must be installed for it; nothing for the mock.
    fn package(&self) -> Option<&'static NpmPackage>;
    /// Where it looks for skills inside, one folder a skill; none: it takes no skills.
    fn skill_root(&self) -> Option<&'static str> {
        None
    }
    /// Whether it takes MCP servers for one session.
    fn takes_mcp(&self) -> bool {
        false
    }
    /// What to start for one session.
    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError>;
    /// Returns a new protocol handler for one process of this agent.
    ///
    /// Its events may be incomplete or out of order; wrap it in a [`NormalizedDialogue`](crate::NormalizedDialogue).
    fn new_dialogue(&self, context: &LaunchContext) -> Box<dyn Dialogue>;
}

/// What an agent is told about the session it is started for.
#[derive(Debug, Clone, Default)]
pub struct LaunchContext {
    /// Which start of this session it is, from 1: makes the ids of a resumed session new ones.
    pub epoch: u32,
    /// Where models are, from inside, without `/v1`.
    pub gateway_url: String,
    /// Opens the gateway for this session and nothing else.
    pub token: String,
    /// Model asked for.
    pub model: Option<String>,
    /// The agent's own mode.
    pub agent_mode: Option<String>,
    /// `default`, `plan`, `acceptEdits` or `bypass`.
    pub permission_mode: Option<String>,
    /// The agent's own session, to resume it.
    pub native_session_id: Option<String>,
    /// What is installed of the agent on the host, mounted read-only: `viv` itself for the mock, for the
    /// others the folder that holds their `node_modules`.
    pub program: PathBuf,
    /// MCP servers of this session.
    pub mcp: McpServers,
    /// Node's program on the host, for the agents whose [`NpmPackage`] needs it.
    pub node: Option<PathBuf>,
}

/// The environment every agent has, and `own` of its variables on top.
pub(crate) fn environment(own: &[(&str, Option<&str>)]) -> BTreeMap<String, String> {
    let common = [("HOME", Some(HOME)), ("PATH", Some("/usr/local/bin:/usr/bin:/bin")), ("LANG", Some("C.UTF-8"))];
    let set = common.iter().chain(own).filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?.to_owned())));
    set.collect()
}

/// What to start inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchPlan {
    /// Program and arguments, as seen inside.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Files to place before the start.
    pub files: Vec<PlacedFile>,
    /// Read-only mounts it needs.
    pub mounts: Vec<ReadOnlyMount>,
    /// Working directory, as seen inside.
    pub workdir: String,
    /// Folders of its home that it needs again to go on with a session after a restart.
    pub saved_home: SavedHome,
}

/// What of an agent's home is kept between two starts of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SavedHome {
    /// Folders, relative to the home.
    pub folders: &'static [&'static str],
    /// How files are called when they are given back, as tar's `--transform` says it.
    pub rename: Option<&'static str>,
}

impl SavedHome {
    /// These folders, as they are.
    pub(crate) const fn of(folders: &'static [&'static str]) -> Self {
        Self { folders, rename: None }
    }
}

/// A file placed for one session only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedFile {
    /// Absolute path, as seen inside.
    pub path: String,
    /// Its content.
    pub content: String,
}

/// A host path shown read-only inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnlyMount {
    /// On the host.
    pub source: PathBuf,
    /// Inside.
    pub target: String,
}

/// Why an agent cannot be started like this.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A mode the agent cannot keep is refused, never dropped.
    #[error("agent `{agent}` has no permission mode `{mode}`")]
    ModeNotSupported {
        /// The agent.
        agent: &'static str,
        /// The mode asked for.
        mode: String,
    },
    /// It would be reached otherwise than the person wrote, or not at all.
    #[error("agent `{agent}` cannot reach the MCP server `{server}`: it does not speak `{transport}`")]
    McpTransport {
        /// The agent.
        agent: &'static str,
        /// The name of the server.
        server: String,
        /// What it would have to speak.
        transport: &'static str,
    },
    /// A program in JavaScript without Node.
    #[error("agent `{0}` needs Node, and none is installed")]
    NodeMissing(&'static str),
}
