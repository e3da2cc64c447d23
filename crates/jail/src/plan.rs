//! What a sandbox is made of, as plain data that travels to the spawner.
//!
//! A plan holds host paths and sizes, no rules: what may be in it is decided by `policy` before.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The user inside; never host uid 0, whoever starts the sandbox.
pub const INSIDE_UID: u32 = 1000;
/// The group inside.
pub const INSIDE_GID: u32 = 1000;

/// Everything the spawner needs to make one sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JailPlan {
    /// Name of the sandbox, for errors.
    pub id: String,
    /// Host paths shown inside.
    pub binds: Vec<BindMount>,
    /// Symbolic links of the root: path inside, and what it says.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Small files of the root: path inside, and content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Whether names are asked for inside, on port 53.
    pub names: bool,
    /// What is at `/workspace`.
    pub workspace: WorkspacePlan,
    /// Bytes of everything that can be written: /tmp, home, shared memory and the workspace's layer together.
    pub disk_bytes: u64,
    /// Number of files and directories of the same.
    pub disk_inodes: u64,
    /// Limits of each process.
    pub process: ProcessLimits,
    /// Whether Landlock guards files beside the mounts; without it only where a policy accepts that by name.
    pub landlock: bool,
}

/// Limits the kernel keeps for each process apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Open files.
    pub nofile: u64,
    /// Bytes of private memory; the weaker means where there is no memory cgroup.
    pub data_bytes: Option<u64>,
    /// Processes of the user inside; the weaker means where there is no pids cgroup.
    pub processes: Option<u64>,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self { nofile: 1024, data_bytes: None, processes: None }
    }
}

/// A host path shown inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindMount {
    /// On the host; opened without following a symbolic link.
    pub source: PathBuf,
    /// Inside.
    pub target: PathBuf,
    /// Whether it can be written through.
    pub writable: bool,
}

/// What is at `/workspace`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum WorkspacePlan {
    /// An empty directory that ends with the sandbox.
    Empty,
    /// The directory under a writable layer; `masks` are paths in it that do not exist inside.
    Overlay {
        /// On the host.
        directory: PathBuf,
        /// Relative to it.
        masks: Vec<PathBuf>,
    },
    /// The directory, unchangeable; `masks` as above.
    ReadOnly {
        /// On the host.
        directory: PathBuf,
        /// Relative to it.
        masks: Vec<PathBuf>,
    },
    /// The directory itself: what is written there is written on the host.
    Bind {
        /// On the host.
        directory: PathBuf,
        /// Paths in it that are empty inside, relative to it.
        hidden: Vec<PathBuf>,
        /// Paths in it that cannot be changed, relative to it.
        kept: Vec<PathBuf>,
    },
}

impl WorkspacePlan {
    /// The host directory, if there is one.
    pub fn directory(&self) -> Option<&PathBuf> {
        match self {
            Self::Empty => None,
            Self::Overlay { directory, .. } | Self::ReadOnly { directory, .. } | Self::Bind { directory, .. } => {
                Some(directory)
            }
        }
    }
}

/// One command in a running sandbox. Its stdin, stdout and stderr go with it as descriptors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecPlan {
    /// Pairs answers with requests.
    pub exec: u64,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Working directory inside.
    pub workdir: String,
    /// Whether stdin is a terminal that becomes the controlling one.
    pub terminal: bool,
    /// Rows and columns of a terminal that is to be made inside; its other end are the pipes that go with this.
    pub window: Option<(u16, u16)>,
}
