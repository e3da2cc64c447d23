//! The sandbox port: the traits that every backend implements.

use std::fmt;
use std::future::Future;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use base::WORKSPACE;
use policy::EffectivePolicy;
use protocol::{KeyEnforcements, ProblemCode};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{ExecSpec, InsidePort, InsideProcess, OverlayLayers, ProcessExit, Toolchains, WindowSize, WorkspaceFiles};

/// The address of the model gateway inside every sandbox.
pub const MODEL_URL: &str = "http://127.0.0.1:18080";

/// A boxed future, so that backends can be chosen at run time.
pub type SandboxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SandboxError>> + Send + 'a>>;

/// Makes sandboxes.
pub trait SandboxBackend: Send + Sync {
    /// Returns the backend's name in events and on the command line.
    fn name(&self) -> &'static str;
    /// Returns the path inside of a workspace that is at `path` on the host. `/workspace` always leads there too.
    fn workspace_path(&self, path: &Path, policy: &EffectivePolicy) -> PathBuf {
        let _ = (path, policy);
        PathBuf::from(WORKSPACE)
    }
    /// Makes a sandbox as `spec` says. Fails when the machine cannot enforce the policy; never makes a weaker sandbox.
    fn create(&self, spec: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>>;
}

/// An isolated place in which commands run. Only what its policy allows leaves it.
pub trait Sandbox: Send + Sync {
    /// Returns the sandbox's id in events.
    fn id(&self) -> &str;
    /// Returns the listener on one of the two ports inside; `None` when it was taken before or does not exist.
    fn take_listener(&self, port: SandboxPort) -> Option<TcpListener>;
    /// Returns the TCP and UDP sockets of the name server inside; `None` when taken before or without a name server.
    fn take_dns_sockets(&self) -> Option<(TcpListener, UdpSocket)>;
    /// Starts a command.
    fn exec(&self, spec: ExecSpec) -> SandboxFuture<'_, SandboxProcess>;
    /// Returns the files of the workspace.
    fn files(&self) -> &dyn WorkspaceFiles;
    /// Returns for each policy key whether and by what it is enforced: the data of `policy.effective`.
    fn effective(&self) -> KeyEnforcements;
    /// Returns the toolchains of the host that the sandbox shows; none unless the backend shows them.
    fn toolchains(&self) -> Toolchains {
        Toolchains::default()
    }
    /// Returns the layers of an overlay workspace; `None` for every other mode.
    fn layers(&self) -> Option<OverlayLayers>;
    /// Returns the processes inside in the order of their start, without init; `None` when the backend cannot tell. Reads
    /// files of `/proc`.
    fn processes(&self) -> Option<Vec<InsideProcess>> {
        None
    }
    /// Returns the TCP ports on which something listens inside; `None` when the backend cannot tell. Reads files of `/proc`.
    fn ports(&self) -> Option<Vec<InsidePort>> {
        None
    }
    /// Connects to a TCP port on the loopback inside. Fails when nothing listens there, for the two ports that lead to the
    /// host, and when the backend cannot connect.
    fn connect(&self, port: u16) -> SandboxFuture<'_, tokio::net::TcpStream> {
        let _ = port;
        Box::pin(async { Err(crate::ports::cannot_connect()) })
    }
    /// Kills every process inside and frees all resources. Returns when all processes have ended. May be called twice.
    fn destroy(&self) -> SandboxFuture<'_, ()>;
}

/// A port inside a sandbox that leads to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxPort {
    /// The model gateway.
    Models,
    /// The egress proxy.
    Egress,
}

/// The specification of a sandbox.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// The id, unique among running sandboxes.
    pub id: String,
    /// The host directory of the workspace; an empty directory when absent.
    pub workspace: Option<PathBuf>,
    /// The path of the workspace inside the sandbox, if the backend can choose it; see [`SandboxBackend::workspace_path`].
    pub workspace_at: PathBuf,
    /// Read-only mounts: host path and path inside the sandbox.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// Files placed before the first command: path inside and content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Toolchains of the host. Containers have those of their image instead.
    pub toolchains: Toolchains,
    /// The policy to enforce.
    pub policy: Arc<EffectivePolicy>,
}

/// A running command.
pub struct SandboxProcess {
    /// The standard input; drop it to close.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// The standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// The standard error.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// Resizes the terminal; does nothing without one.
    pub resize: Box<dyn Fn(WindowSize) + Send + Sync>,
    /// Kills the command and everything that it started.
    pub kill: Box<dyn Fn() + Send + Sync>,
    /// Resolves when the command has ended.
    pub exit: Pin<Box<dyn Future<Output = Result<ProcessExit, SandboxError>> + Send>>,
}

impl fmt::Debug for SandboxProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

/// An error of making a sandbox or running a command in it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// This machine cannot enforce the policy.
    #[error("{missing}")]
    Unavailable {
        /// A sentence that says what is missing.
        missing: String,
        /// A command or policy change that fixes it.
        fix: String,
    },
    /// Making the sandbox failed.
    #[error("cannot make the sandbox: {step}")]
    Create {
        /// The step that failed.
        step: String,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The gateway's address is in use, or cannot be bound.
    #[error("the gateway cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The program does not exist inside the sandbox.
    #[error("`{0}` is not in the sandbox")]
    NotFound(String),
    /// The program exists but cannot be executed.
    #[error("`{0}` cannot be executed in the sandbox")]
    NotExecutable(String),
    /// Starting or waiting for a command failed.
    #[error("cannot {doing} the command")]
    Exec {
        /// The step that failed.
        doing: &'static str,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// Connecting to a port inside failed.
    #[error("cannot connect to port {port} inside the sandbox")]
    Connect {
        /// The port.
        port: u16,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The sandbox is gone.
    #[error("the sandbox has ended")]
    Gone,
}

impl SandboxError {
    /// Returns the stable error code for an error of making a sandbox.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Bind { .. } => ProblemCode::ProxyBindError,
            Self::Connect { .. } => ProblemCode::PortNotOpen,
            _ => ProblemCode::SandboxCreateError,
        }
    }
}
