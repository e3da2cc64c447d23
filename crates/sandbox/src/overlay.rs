//! What an overlay workspace holds that the host does not.
//!
//! The upper layer was written by the sandbox: nothing in it is trusted. It is walked by descriptor, no
//! link is followed, and only the names and kinds of things are believed.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use policy::FileDenials;
use serde::{Deserialize, Serialize};

use crate::beneath;
use crate::review::walk::touched;

/// The two layers of a workspace.
#[derive(Debug, Clone)]
pub struct OverlayLayers {
    /// Holds what was written; it outlives the sandbox.
    pub upper: Arc<OwnedFd>,
    /// The directory on the host.
    pub lower: PathBuf,
    /// When the sandbox was made.
    pub since: SystemTime,
    /// What its policy denies: no change of these is ever applied.
    pub denials: FileDenials,
}

/// One path that is not as on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceChange {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is gone.
    Deleted,
    /// It is new.
    Added,
    /// It has other content or another kind.
    Modified,
}

impl OverlayLayers {
    /// Every path that was touched, deletions first, then by path. A directory that only holds changes is
    /// none; what was deleted with its directory is listed path by path. A file that was only opened for
    /// writing is among them: telling it apart means reading it, as `SavedChanges::save` does.
    pub fn changes(&self) -> io::Result<Vec<WorkspaceChange>> {
        let touched = touched(&self.upper, &beneath::root(&self.lower)?)?;
        Ok(touched.into_iter().map(|touched| WorkspaceChange { path: touched.path, kind: touched.kind }).collect())
    }

    /// Content of a changed path as the sandbox left it; `None` when it is no regular file there.
    pub fn after(&self, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
        read(&*self.upper, path, limit)
    }

    /// Content of a path on the host; `None` when it is no regular file there.
    pub fn before(&self, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
        read(beneath::root(&self.lower)?, path, limit)
    }
}

fn read(root: impl AsFd, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = beneath::regular(root, path)? else { return Ok(None) };
    let mut content = Vec::new();
    file.take(limit).read_to_end(&mut content)?;
    Ok(Some(content))
}
