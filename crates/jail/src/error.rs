//! Errors of making and using a sandbox, with one variant for each step of the set-up.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

/// A step of the set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "`Display` describes each step")]
pub enum SetupStep {
    EnterEngine,
    OpenSource,
    IdMapOwner,
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
            Self::EnterEngine => "enter the namespaces of the container engine",
            Self::OpenSource => "open a host path",
            Self::IdMapOwner => "map the owner of the files",
            Self::CloneNamespaces => "make the namespaces",
            Self::MapIds => "map user and group ids",
            Self::JoinCgroup => "join the cgroup",
            Self::CgroupNamespace => "make the cgroup namespace",
            Self::BecomeInsideUser => "switch to the sandbox user",
            Self::PrivateMounts => "separate the mounts from the host's",
            Self::NewRoot => "make the private root",
            Self::Scratch => "make the writable space",
            Self::MountSystem => "mount a host path",
            Self::PlaceFiles => "place a file",
            Self::MountProc => "mount /proc",
            Self::MaskProc => "mask an entry of /proc",
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

/// A failed step of the set-up, as it is sent to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetupFailure {
    pub(crate) step: SetupStep,
    /// The path or name that the step worked on; empty when there is none.
    pub(crate) subject: String,
    pub(crate) errno: i32,
}

/// Adds the step and its subject to an error of the kernel.
pub(crate) trait During<T> {
    fn during(self, step: SetupStep, subject: impl fmt::Display) -> Result<T, SetupFailure>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, step: SetupStep, subject: impl fmt::Display) -> Result<T, SetupFailure> {
        self.map_err(|error| SetupFailure {
            step,
            subject: subject.to_string(),
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
        })
    }
}

/// An error of making or using a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// A step of the set-up failed. The unfinished sandbox was ended.
    #[error("cannot {step}{}", subject_suffix(.subject))]
    Setup {
        /// The step.
        step: SetupStep,
        /// The path or name that the step worked on.
        subject: String,
        /// The error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The finished sandbox differs from its plan, so it was killed.
    #[error("the sandbox differs from its plan: {0}")]
    NotAsPlanned(String),
    /// The control socket of a sandbox failed.
    #[error("cannot read from the control socket of the sandbox")]
    Control(#[source] io::Error),
    /// The spawner could not be started, or has ended.
    #[error("cannot {0} the sandbox spawner")]
    Spawner(&'static str, #[source] io::Error),
    /// The sandbox has ended.
    #[error("the sandbox has ended")]
    Ended,
    /// The program does not exist inside the sandbox.
    #[error("`{0}` is not in the sandbox")]
    NotFound(String),
    /// The program exists but cannot be executed.
    #[error("`{0}` cannot be executed in the sandbox")]
    NotExecutable(String, #[source] io::Error),
    /// A command could not be started.
    #[error("cannot start `{0}`")]
    Exec(String, #[source] io::Error),
    /// A limit cannot be enforced on this machine.
    #[error("cannot enforce `{key}` on this machine: {reason}")]
    Limit {
        /// The policy key.
        key: &'static str,
        /// The missing feature.
        reason: String,
    },
}

fn subject_suffix(subject: &str) -> String {
    if subject.is_empty() { String::new() } else { format!(" (`{subject}`)") }
}

impl From<SetupFailure> for JailError {
    fn from(failure: SetupFailure) -> Self {
        Self::Setup {
            step: failure.step,
            subject: failure.subject,
            source: io::Error::from_raw_os_error(failure.errno),
        }
    }
}
