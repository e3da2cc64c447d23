//! The layers of an overlay workspace, and the changes that they hold.
//!
//! The sandbox wrote the upper layer, so nothing in it is trusted. It is walked by descriptor without following links, and
//! only names and file types are used.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use policy::FileDenials;
use serde::{Deserialize, Serialize};

use crate::beneath;
use crate::review::RepositoryStart;
use crate::review::upper_walk::touched_paths;

/// The two layers of a workspace.
#[derive(Debug, Clone)]
pub struct OverlayLayers {
    /// The layer that holds the changes; it outlives the sandbox.
    pub upper: Arc<OwnedFd>,
    /// The directory on the host.
    pub lower: PathBuf,
    /// When the sandbox was made.
    pub since: SystemTime,
    /// The file denials of the policy. Changes of denied files are never applied.
    pub denials: FileDenials,
    /// The branches of the host's repository when the sandbox was made.
    pub repository: RepositoryStart,
}

/// One path that differs from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceChange {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// The kind of change.
    pub kind: ChangeKind,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The path was deleted.
    Deleted,
    /// The path is new.
    Added,
    /// The path has other content or another file type.
    Modified,
}

impl OverlayLayers {
    /// Returns the layers of a new sandbox, with the branches of the host's repository as they are now.
    pub fn new(upper: OwnedFd, lower: PathBuf, since: SystemTime, denials: FileDenials) -> Self {
        let repository = RepositoryStart::read_or_empty(&lower);
        Self { upper: Arc::new(upper), lower, since, denials, repository }
    }

    /// Returns whether the upper layer has an entry. Without one, nothing was touched; also true if it cannot be read.
    pub fn has_entries(&self) -> bool {
        let Ok(entries) = rustix::fs::Dir::read_from(&*self.upper) else { return true };
        entries.flatten().any(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
    }

    /// Returns every path that was touched, deletions first, then by path. A directory that only contains changes is not
    /// listed; entries of a deleted directory are listed one by one. Files that were only opened for writing are included:
    /// finding them would mean to read them, as `SavedChanges::save` does.
    pub fn changes(&self) -> io::Result<Vec<WorkspaceChange>> {
        let touched = touched_paths(&self.upper, &beneath::root(&self.lower)?, &self.denials)?;
        Ok(touched.into_iter().map(|touched| WorkspaceChange { path: touched.path, kind: touched.kind }).collect())
    }

    /// Returns the content of a path in the sandbox, at most `limit` bytes; `None` when it is not a regular file.
    pub fn after(&self, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
        read(&*self.upper, path, limit)
    }

    /// Returns the content of a path on the host, at most `limit` bytes; `None` when it is not a regular file, or is hidden
    /// by the policy.
    pub fn before(&self, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
        if self.denials.hides(path) {
            return Ok(None);
        }
        read(beneath::root(&self.lower)?, path, limit)
    }
}

fn read(root: impl AsFd, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = beneath::regular(root, path)? else { return Ok(None) };
    let mut content = Vec::new();
    file.take(limit).read_to_end(&mut content)?;
    Ok(Some(content))
}
