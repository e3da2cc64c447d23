//! The manifest: the list of saved changes on disk.
//!
//! It is replaced as a whole, and only after the contents that it names are on disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base::Digest;
use policy::FileDenials;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::commits::RepositoryStart;
use super::set_digest::digest_of;
use super::{FileStamp, SavedChange, json_path};

const NAME: &str = "manifest.json";

/// The manifest of saved changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    /// The directory on the host.
    #[serde(with = "json_path")]
    pub(crate) workspace: PathBuf,
    /// When the sandbox was made.
    pub(crate) since_nanos: i64,
    /// When the save began.
    pub(crate) saved_nanos: i64,
    /// Deletions first, then by path.
    pub(crate) changes: Vec<ManifestEntry>,
    /// Files that an apply wrote to the host. They are not conflicts, although they are new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) known: Vec<KnownFile>,
    /// The file denials of the sandbox's policy.
    #[serde(default)]
    pub(crate) denials: FileDenials,
    /// The branches of the host's repository when the session began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) repository: Option<RepositoryStart>,
    /// The number of the set that holds these changes; 0 when nothing was ever changed. Manifests of earlier builds are
    /// set 1.
    #[serde(default = "first_set")]
    pub(crate) set: u64,
    /// The tips of the commits that belong to the set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) commits: Vec<String>,
}

fn first_set() -> u64 {
    1
}

/// One change, with the stamp of the file that it was copied from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ManifestEntry {
    #[serde(flatten)]
    pub(crate) change: SavedChange,
    /// The stamp of the file in the upper layer, so that the next save knows whether it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) upper: Option<FileStamp>,
}

/// A file of the host as an apply left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownFile {
    #[serde(with = "json_path")]
    pub(crate) path: PathBuf,
    pub(crate) stamp: FileStamp,
}

impl Manifest {
    pub(crate) const VERSION: u32 = 1;

    /// Reads the manifest; fails with `NotFound` when nothing was saved.
    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        let this: Self = read_json(&directory.join(NAME))?;
        if this.version == Self::VERSION {
            return Ok(this);
        }
        let why = format!("saved changes are of version {}, this program reads {}", this.version, Self::VERSION);
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        write_json(directory, NAME, self)
    }

    /// Returns the digest of the changes.
    pub(crate) fn digest(&self) -> Digest {
        digest_of(&self.workspace, self.changes.iter().map(|record| &record.change), &self.commits)
    }

    /// Sorts the changes: deletions first, then by path.
    pub(crate) fn sort(&mut self) {
        use crate::overlay::ChangeKind::Deleted;
        let key = |record: &ManifestEntry| (record.change.kind != Deleted, record.change.path.clone());
        self.changes.sort_by_cached_key(key);
    }
}

/// Reads one of our own files.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let content = std::fs::read(path)?;
    serde_json::from_slice(&content).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("`{}` cannot be read: {error}", path.display()))
    })
}

/// Replaces a file as a whole: after a crash it has the old or the new content.
pub(crate) fn write_json(directory: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    let temporary = directory.join(format!("{name}.new"));
    let mut file = File::create(&temporary)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    std::fs::rename(&temporary, directory.join(name))?;
    sync_directory(directory)
}

/// Writes renames and removals in a directory to disk.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
