//! The port: what every backend must offer.

use std::fmt;
use std::future::Future;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use policy::EffectivePolicy;
use protocol::ProblemCode;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{ExecSpec, OverlayLayers, ProcessExit, WindowSize, WorkspaceFiles};

/// Where a command inside finds the model gateway, in every backend.
pub const MODEL_URL: &str = "http://127.0.0.1:18080";

/// An answer that comes later; boxed, so that backends can be chosen at run time.
pub type SandboxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SandboxError>> + Send + 'a>>;

/// Makes sandboxes.
pub trait SandboxBackend: Send + Sync {
    /// Its name in records and on the command line.
    fn name(&self) -> &'static str;
    /// Makes a sandbox as `spec` says, or fails with what is missing. Never a weaker one.
    fn create(&self, spec: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>>;
}

/// A place where commands run, and nothing leaves but what its spec names.
pub trait Sandbox: Send + Sync {
    /// Its name in records.
    fn id(&self) -> &str;
    /// A listener on one of the two ports inside; `None` once taken, or where there is none.
    fn take_listener(&self, port: SandboxPort) -> Option<TcpListener>;
    /// What is asked for names inside, by stream and by datagram; `None` once taken, or where nobody is asked.
    fn take_names(&self) -> Option<(TcpListener, UdpSocket)>;
    /// Starts a command.
    fn exec(&self, spec: ExecSpec) -> SandboxFuture<'_, SandboxProcess>;
    /// The files of its workspace.
    fn files(&self) -> &dyn WorkspaceFiles;
    /// What is enforced here, key by key, and by what; the data of `policy.effective`.
    fn effective(&self) -> serde_json::Value;
    /// What an overlay workspace is made of, to see what changed; `None` for every other mode.
    fn layers(&self) -> Option<OverlayLayers>;
    /// Ends every process inside and frees everything. Returns when all are dead; twice is no error.
    fn destroy(&self) -> SandboxFuture<'_, ()>;
}

/// The two ways out of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxPort {
    /// The model gateway.
    Models,
    /// Everything else that is allowed.
    Egress,
}

/// What a sandbox is made of.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// Unique among those alive.
    pub id: String,
    /// The directory at `/workspace`; an empty one when there is none.
    pub workspace: Option<PathBuf>,
    /// Read-only mounts: host path and path inside.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// Files placed before the first command: path inside and content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// What is allowed in it.
    pub policy: Arc<EffectivePolicy>,
}

/// A running command.
pub struct SandboxProcess {
    /// Its standard input; drop it to close.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Its standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Its standard error.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// Says that the window of its terminal has another size; without a terminal this does nothing.
    pub resize: Box<dyn Fn(WindowSize) + Send + Sync>,
    /// Ends the command and everything it started.
    pub kill: Box<dyn Fn() + Send + Sync>,
    /// Comes when it ended.
    pub exit: Pin<Box<dyn Future<Output = Result<ProcessExit, SandboxError>> + Send>>,
}

impl fmt::Debug for SandboxProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

/// Why a sandbox or a command in it failed.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The machine cannot enforce what was asked.
    #[error("{missing}")]
    Unavailable {
        /// What is missing, in a sentence.
        missing: String,
        /// A line that can be pasted to enable it.
        fix: String,
    },
    /// Making the sandbox failed.
    #[error("cannot make the sandbox: {step}")]
    Create {
        /// The step that failed.
        step: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The gateway's address is taken, or cannot be listened on.
    #[error("the gateway cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// There is no such program inside.
    #[error("`{0}` is not in the sandbox")]
    NotFound(String),
    /// The program is there but cannot be run.
    #[error("`{0}` cannot be executed in the sandbox")]
    NotExecutable(String),
    /// Starting or waiting for a command failed.
    #[error("cannot {doing} the command")]
    Exec {
        /// The step that failed.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The sandbox is gone.
    #[error("the sandbox is gone")]
    Gone,
}

impl SandboxError {
    /// Stable identifier for clients, of an error that came while the sandbox was made.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Bind { .. } => ProblemCode::ProxyBindError,
            _ => ProblemCode::SandboxCreateError,
        }
    }
}
