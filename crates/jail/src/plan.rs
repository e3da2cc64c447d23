//! The plan of a sandbox, as plain data that is sent to the spawner.
//!
//! A plan holds host paths and sizes, and no rules: `policy` decides what may be in it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The user id inside the sandbox. It is never mapped to host uid 0.
pub const INSIDE_UID: u32 = 1000;
/// The group id inside the sandbox.
pub const INSIDE_GID: u32 = 1000;

/// Everything the spawner needs to make one sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JailPlan {
    /// The id of the sandbox, for errors.
    pub id: String,
    /// Host paths mounted inside the sandbox.
    pub binds: Vec<BindMount>,
    /// Directories of the host that are shown under a layer of their own.
    pub layers: Vec<LayerPlan>,
    /// Symbolic links of the root: path inside and target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Small files of the root: path inside and content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Whether a name server listens inside, on port 53.
    pub dns: bool,
    /// The workspace.
    pub workspace: WorkspacePlan,
    /// The path of the workspace inside. If it is not `/workspace`, that is a link to it. Containers do not use it.
    pub workspace_at: PathBuf,
    /// The most bytes that can be written to /tmp, home, shared memory and the workspace's layer together.
    pub disk_bytes: u64,
    /// The most files and directories in the same.
    pub disk_inodes: u64,
    /// The limits of each process.
    pub process: ProcessLimits,
    /// Whether Landlock restricts file access in addition to the mounts. False only when the policy accepts it by name.
    pub landlock: bool,
}

/// Limits that the kernel enforces for each process separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Open files.
    pub nofile: u64,
    /// Bytes of private memory; the weaker limit where there is no memory cgroup.
    pub data_bytes: Option<u64>,
    /// Processes of the sandbox user; the weaker limit where there is no pids cgroup.
    pub processes: Option<u64>,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self { nofile: 1024, data_bytes: None, processes: None }
    }
}

/// A host path mounted inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindMount {
    /// The path on the host; opened without following a symbolic link.
    pub source: PathBuf,
    /// The path inside the sandbox.
    pub target: PathBuf,
    /// Whether the mount is writable.
    pub writable: bool,
}

/// A directory of the host, shown under a mask layer and, if it is writable, under a private layer that takes the changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerPlan {
    /// The directory on the host; opened without following a symbolic link.
    pub directory: PathBuf,
    /// The path inside the sandbox.
    pub target: PathBuf,
    /// Whether commands can write. The host's directory never changes.
    pub writable: bool,
    /// Paths that do not exist inside the sandbox, relative to the directory. Their parents exist.
    pub masks: Vec<PathBuf>,
    /// Files that have different content inside the sandbox.
    pub covers: Vec<CoverFile>,
}

/// A file of the workspace that has different content inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoverFile {
    /// The path, relative to the workspace.
    pub path: PathBuf,
    /// The content inside the sandbox. Hexadecimal text in JSON, which is shorter than a list of numbers.
    #[serde(with = "as_hex")]
    pub content: Vec<u8>,
}

mod as_hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&base::encode_hex(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let pairs = text.as_bytes().chunks(2);
        pairs
            .map(|pair| match pair {
                [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
                _ => None,
            })
            .collect::<Option<_>>()
            .ok_or_else(|| D::Error::custom("not hexadecimal text"))
    }
}

/// How the workspace is made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum WorkspacePlan {
    /// An empty directory that is lost with the sandbox.
    Empty,
    /// The directory under a writable layer.
    Overlay {
        /// The directory on the host.
        directory: PathBuf,
        /// Paths that do not exist inside, relative to the directory.
        masks: Vec<PathBuf>,
        /// Files that have other content inside the sandbox.
        covers: Vec<CoverFile>,
    },
    /// The directory, read-only.
    ReadOnly {
        /// The directory on the host.
        directory: PathBuf,
        /// Paths that do not exist inside, relative to the directory.
        masks: Vec<PathBuf>,
        /// Files that have other content inside the sandbox.
        covers: Vec<CoverFile>,
    },
    /// The directory itself: writes go to the host.
    Bind {
        /// The directory on the host.
        directory: PathBuf,
        /// Paths that are empty inside, relative to the directory.
        hidden: Vec<PathBuf>,
        /// Files that have other content inside, and cannot be changed there.
        covers: Vec<CoverFile>,
        /// Paths that cannot be changed, relative to the directory.
        protected: Vec<PathBuf>,
    },
}

impl WorkspacePlan {
    /// Returns the host directory, if there is one.
    pub fn directory(&self) -> Option<&PathBuf> {
        match self {
            Self::Empty => None,
            Self::Overlay { directory, .. } | Self::ReadOnly { directory, .. } | Self::Bind { directory, .. } => {
                Some(directory)
            }
        }
    }
}

/// One command in a running sandbox. Its stdin, stdout and stderr are sent with it as descriptors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecPlan {
    /// The number of the command, which events refer to.
    pub exec: u64,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// The working directory inside the sandbox.
    pub workdir: String,
    /// Whether stdin is a terminal, which becomes the controlling terminal.
    pub terminal: bool,
    /// Rows and columns of a terminal that init makes inside and connects to the pipes that are sent with this plan.
    pub window: Option<(u16, u16)>,
}
