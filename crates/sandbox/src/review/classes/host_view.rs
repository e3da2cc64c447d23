//! The view of a workspace on the host that classification needs, read once.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::host_git;
use super::host_settings::HostSettings;
use crate::beneath;
use crate::review::{SavedChange, SavedEntry};
use crate::tree::{VisitNext, visit};

/// The links, git settings and ignored paths of a workspace.
#[derive(Debug, Default)]
pub(crate) struct HostView {
    /// The directory on the host; `None` when it does not exist.
    pub(crate) workspace: Option<OwnedFd>,
    pub(crate) root: PathBuf,
    /// Every link with its target.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    pub(crate) settings: HostSettings,
    /// The changed paths that the repository ignores.
    pub(crate) ignored: HashSet<PathBuf>,
}

impl HostView {
    /// Reads the workspace at `root`, a path without links.
    pub(crate) fn read(root: &Path, changes: &[&SavedChange]) -> io::Result<Self> {
        let workspace = match beneath::root(root) {
            Ok(workspace) => workspace,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let mut links = Vec::new();
        visit(&workspace, Path::new(""), &mut |path, kind| {
            if kind == FileType::Symlink
                && let Some(target) = beneath::link(&workspace, path)?
            {
                links.push((path.to_owned(), target));
            }
            Ok(VisitNext::Enter)
        })?;
        let question: Vec<Vec<u8>> = changes.iter().map(|change| as_question(change)).collect();
        let ignored = host_git::ignored(root, &question)?;
        Ok(Self {
            workspace: Some(workspace),
            root: root.to_owned(),
            links,
            settings: HostSettings::read(root)?,
            // Components drop the slash at the end of a directory.
            ignored: ignored.iter().map(|path| path.components().collect()).collect(),
        })
    }

    /// Returns whether the host has a directory at `path`.
    pub(crate) fn has_directory(&self, path: &Path) -> bool {
        let stamp = self.workspace.as_ref().and_then(|workspace| beneath::stamp(workspace, path).ok().flatten());
        stamp.is_some_and(|stamp| stamp.is_directory())
    }

    /// Returns whether the host has anything at `path`. A path that cannot be read counts as missing.
    pub(crate) fn has(&self, path: &Path) -> bool {
        let stamp = self.workspace.as_ref().map(|workspace| beneath::stamp(workspace, path));
        stamp.is_some_and(|stamp| stamp.is_ok_and(|stamp| stamp.is_some()))
    }
}

/// Returns a path as git expects it: a directory ends with a slash, because it may not exist on the host yet.
fn as_question(change: &SavedChange) -> Vec<u8> {
    let mut path = change.path.as_os_str().as_bytes().to_vec();
    let is_directory = match &change.entry {
        Some(entry) => matches!(entry, SavedEntry::Directory { .. }),
        None => change.base.is_some_and(|base| base.is_directory()),
    };
    if is_directory {
        path.push(b'/');
    }
    path
}
