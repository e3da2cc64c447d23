//! What a server is made of.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use protocol::{Problem, SessionId};
use session::SessionOptions;

use crate::access::AuthMode;
use crate::task_registry::TaskRunner;
use crate::tls::TlsConfig;
use crate::event_filter::EventFilter;

/// What a server is made of.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// How callers over TCP show who they are.
    pub auth: AuthMode,
    /// Names this server answers to, beside those of the loopback.
    pub hosts: Vec<String>,
    /// Origins whose pages may call it, beside its own.
    pub origins: Vec<String>,
    /// Bytes of a message with its attachments.
    pub message_bytes: usize,
    /// Bytes of one file, or of all files of one archive, in or out.
    pub file_bytes: u64,
    /// Bytes of a bundle that is taken in.
    pub bundle_bytes: u64,
    /// The directories of the host, without links, in which callers that may not do everything find their workspaces.
    pub workspace_roots: Arc<[PathBuf]>,
    /// Which types of events a client is served that does not say.
    pub events: EventFilter,
    /// Where calls that change something are noted; nowhere when there is none.
    pub audit: Option<PathBuf>,
    /// Installs agents, where that can be done.
    pub installer: Option<AgentInstaller>,
    /// Ends sessions that other processes of the data directory run, where they can be reached.
    pub remote_stop: Option<RemoteStop>,
    /// Does tasks, where that can be done.
    pub task_runner: Option<TaskRunner>,
    /// How sessions are made.
    pub options: SessionOptions,
    /// Time between two signs of life on a silent stream.
    pub heartbeat: Duration,
    /// How long answers in flight may take once the server stops.
    pub drain: Duration,
}

impl ServerConfig {
    /// A server with the usual bounds.
    pub fn new(auth: AuthMode) -> Self {
        Self {
            auth,
            hosts: Vec::new(),
            origins: Vec::new(),
            message_bytes: 16 << 20,
            file_bytes: 1 << 30,
            bundle_bytes: 1 << 30,
            workspace_roots: Arc::default(),
            events: EventFilter::All,
            audit: None,
            installer: None,
            remote_stop: None,
            task_runner: None,
            options: SessionOptions::default(),
            heartbeat: Duration::from_secs(15),
            drain: Duration::from_secs(2),
        }
    }
}

/// Installs agents: the name of one, and whether one that is there is installed again.
#[derive(Clone)]
pub struct AgentInstaller(pub Arc<InstallAgent>);

/// What an [`AgentInstaller`] does; it may take minutes.
pub type InstallAgent = dyn Fn(&str, bool) -> Result<(), Box<Problem>> + Send + Sync;

impl std::fmt::Debug for AgentInstaller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Installer")
    }
}

/// Ends a session that another process runs.
#[derive(Clone)]
pub struct RemoteStop(pub Arc<StopSession>);

/// What [`RemoteStop`] does; when it is done, every process of the session is dead.
pub type StopSession = dyn Fn(SessionId) -> BoxFuture<'static, Result<(), Box<Problem>>> + Send + Sync;

impl std::fmt::Debug for RemoteStop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Elsewhere")
    }
}

/// Where a server listens.
#[derive(Debug, Clone, Default)]
pub struct ServerListeners {
    /// TCP addresses; without tokens only loopback ones are taken.
    pub tcp: Vec<SocketAddr>,
    /// A unix socket; callers of the same user need no token.
    pub unix: Option<PathBuf>,
    /// What callers over TCP are greeted with; none: plain HTTP.
    pub tls: Option<TlsConfig>,
}
