//! The list of saved changes on disk.
//!
//! It is replaced as a whole or not at all, and only after the content it names is on disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use policy::FileDenials;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{FileStamp, SavedChange, json_path};

const NAME: &str = "manifest.json";

/// Everything a save knows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    /// The directory on the host.
    #[serde(with = "json_path")]
    pub(crate) workspace: PathBuf,
    /// When the sandbox was made.
    pub(crate) since_nanos: i64,
    /// When the walk began.
    pub(crate) saved_nanos: i64,
    /// Deletions first, then by path.
    pub(crate) changes: Vec<ManifestEntry>,
    /// What we wrote to the host ourselves: not a change by somebody else, however young it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) known: Vec<KnownFile>,
    /// What the sandbox's own policy denies.
    #[serde(default)]
    pub(crate) denials: FileDenials,
}

/// One change, and what it was copied from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ManifestEntry {
    #[serde(flatten)]
    pub(crate) change: SavedChange,
    /// The file of the upper layer, so that the next save can tell whether it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) upper: Option<FileStamp>,
}

/// A path of the host as we left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownFile {
    #[serde(with = "json_path")]
    pub(crate) path: PathBuf,
    pub(crate) stamp: FileStamp,
}

impl Manifest {
    pub(crate) const VERSION: u32 = 1;

    /// Reads the list; `NotFound` when nothing was saved.
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

    /// Deletions first, then by path.
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

/// Puts a file in place as a whole: a crash leaves the one before, or this one.
pub(crate) fn write_json(directory: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    let temporary = directory.join(format!("{name}.new"));
    let mut file = File::create(&temporary)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    std::fs::rename(&temporary, directory.join(name))?;
    sync_directory(directory)
}

/// Makes renames and removals in a directory last.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
