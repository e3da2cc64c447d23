//! The configuration of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use protocol::{Problem, SessionId};
use session::SessionOptions;

use crate::access::AuthMode;
use crate::event_filter::EventFilter;
use crate::mcp_endpoint::McpEndpoint;
use crate::task_registry::TaskRunner;
use crate::tls::TlsConfig;

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The authentication of callers over TCP.
    pub auth: AuthMode,
    /// Names of this server, in addition to the loopback names.
    pub hosts: Vec<String>,
    /// Origins whose pages may call it, in addition to its own.
    pub origins: Vec<String>,
    /// Most bytes of a message with its attachments.
    pub message_bytes: usize,
    /// Most bytes of one file, or of all files of one archive.
    pub file_bytes: u64,
    /// Most bytes of an imported bundle.
    pub bundle_bytes: u64,
    /// The directories of the host, with links resolved, in which callers without `admin` may have workspaces.
    pub workspace_roots: Arc<[PathBuf]>,
    /// The default event filter of clients.
    pub events: EventFilter,
    /// The path of the audit log; `None` writes no audit log.
    pub audit: Option<PathBuf>,
    /// Installs agents; `None` refuses to.
    pub installer: Option<AgentInstaller>,
    /// Ends sessions that other processes of the data directory run; `None` refuses to.
    pub remote_stop: Option<RemoteStop>,
    /// Runs tasks; `None` refuses to.
    pub task_runner: Option<TaskRunner>,
    /// The service of the route `/mcp`; `None` has no such route.
    pub mcp: Option<McpEndpoint>,
    /// The options of new sessions.
    pub options: SessionOptions,
    /// Time between two heartbeats on an idle stream.
    pub heartbeat: Duration,
    /// Most time for running responses to end when the server stops.
    pub drain: Duration,
}

impl ServerConfig {
    /// Returns a configuration with the default limits.
    pub fn new(auth: AuthMode) -> Self {
        Self {
            auth,
            hosts: Vec::new(),
            origins: Vec::new(),
            message_bytes: 16 << 20,
            file_bytes: 1 << 30,
            bundle_bytes: 1 << 30,
            workspace_roots: Arc::default(),
            events: EventFilter::default(),
            audit: None,
            installer: None,
            remote_stop: None,
            task_runner: None,
            mcp: None,
            options: SessionOptions::default(),
            heartbeat: Duration::from_secs(15),
            drain: Duration::from_secs(2),
        }
    }
}

/// Installs agents.
#[derive(Clone)]
pub struct AgentInstaller(pub Arc<InstallAgent>);

/// Installs the named agent; the flag reinstalls an installed one. Can take minutes.
pub type InstallAgent = dyn Fn(&str, bool) -> Result<(), Box<Problem>> + Send + Sync;

impl std::fmt::Debug for AgentInstaller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgentInstaller")
    }
}

/// Ends a session that another process runs.
#[derive(Clone)]
pub struct RemoteStop(pub Arc<StopSession>);

/// Ends a session; when the future completes, all processes of the session are dead.
pub type StopSession = dyn Fn(SessionId) -> BoxFuture<'static, Result<(), Box<Problem>>> + Send + Sync;

impl std::fmt::Debug for RemoteStop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RemoteStop")
    }
}

/// The listeners of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerListeners {
    /// TCP addresses; without tokens only loopback addresses are allowed.
    pub tcp: Vec<SocketAddr>,
    /// The path of a Unix socket, where callers of the same user need no token.
    pub unix: Option<PathBuf>,
    /// TLS for the TCP listeners; `None` is plain HTTP.
    pub tls: Option<TlsConfig>,
}
