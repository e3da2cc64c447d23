//! Why a sandbox could not be made or used: one variant a kernel step.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

/// A step of the set-up, by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "`Display` says what each step does")]
pub enum SetupStep {
    EnterEngine,
    OpenSource,
    IdMapWorkspace,
    CloneNamespaces,
    MapIds,
    JoinCgroup,
    CgroupNamespace,
    BecomeInsideUser,
    PrivateMounts,
    NewRoot,
    Scratch,
    MountSystem,
    PlaceFiles,
    MountProc,
    MaskProc,
    MountDevices,
    MountWorkspace,
    PivotRoot,
    Hostname,
    RaiseLoopback,
    BindListeners,
    ForbidNesting,
    DropCapabilities,
    NoNewPrivileges,
    Landlock,
    Seccomp,
    Report,
}

impl fmt::Display for SetupStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EnterEngine => "enter the namespaces of the engine",
            Self::OpenSource => "open a host path",
            Self::IdMapWorkspace => "map the owner of the workspace",
            Self::CloneNamespaces => "make the namespaces",
            Self::MapIds => "map user and group ids",
            Self::JoinCgroup => "join the limits' cgroup",
            Self::CgroupNamespace => "make the cgroup namespace",
            Self::BecomeInsideUser => "become the user inside",
            Self::PrivateMounts => "part the mounts from the host's",
            Self::NewRoot => "make the private root",
            Self::Scratch => "make the writable space",
            Self::MountSystem => "mount a host path",
            Self::PlaceFiles => "place a file",
            Self::MountProc => "mount /proc",
            Self::MaskProc => "mask a part of /proc",
            Self::MountDevices => "mount a device",
            Self::MountWorkspace => "mount the workspace",
            Self::PivotRoot => "enter the private root",
            Self::Hostname => "set the host name",
            Self::RaiseLoopback => "set the loopback interface up",
            Self::BindListeners => "bind the gateway's listeners",
            Self::ForbidNesting => "forbid nested namespaces",
            Self::DropCapabilities => "drop capabilities",
            Self::NoNewPrivileges => "forbid new privileges",
            Self::Landlock => "install the Landlock rules",
            Self::Seccomp => "install the system call filter",
            Self::Report => "report to the host",
        })
    }
}

/// A step that failed inside the new process, as it travels to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) step: SetupStep,
    /// What it was about: a path, a name.
    pub(crate) subject: String,
    pub(crate) errno: i32,
}

/// Adds the step and its subject to what the kernel said.
pub(crate) trait During<T> {
    fn during(self, step: SetupStep, subject: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, step: SetupStep, subject: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            step,
            subject: subject.to_string(),
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
        })
    }
}

/// Why a sandbox could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// A step of the set-up failed; the half-made sandbox is gone.
    #[error("cannot {step}{}", subject_suffix(.subject))]
    Setup {
        /// The step.
        step: SetupStep,
        /// What it was about.
        subject: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// What came out is not what the plan said; it was killed.
    #[error("the sandbox is not what was planned: {0}")]
    NotAsPlanned(String),
    /// The spawner could not be started or has gone.
    #[error("cannot {0} the sandbox spawner")]
    Spawner(&'static str, #[source] io::Error),
    /// The sandbox has ended.
    #[error("the sandbox has ended")]
    Ended,
    /// There is no such program inside.
    #[error("`{0}` is not in the sandbox")]
    NotFound(String),
    /// The program is there but cannot be run.
    #[error("`{0}` cannot be executed in the sandbox")]
    NotExecutable(String, #[source] io::Error),
    /// A command could not be started.
    #[error("cannot start `{0}`")]
    Exec(String, #[source] io::Error),
    /// A limit cannot be enforced on this machine.
    #[error("cannot enforce `{key}` here: {reason}")]
    Limit {
        /// The policy key.
        key: &'static str,
        /// What is missing.
        reason: String,
    },
}

fn subject_suffix(subject: &str) -> String {
    if subject.is_empty() { String::new() } else { format!(" (`{subject}`)") }
}

impl From<Failure> for JailError {
    fn from(failure: Failure) -> Self {
        Self::Setup {
            step: failure.step,
            subject: failure.subject,
            source: io::Error::from_raw_os_error(failure.errno),
        }
    }
}
