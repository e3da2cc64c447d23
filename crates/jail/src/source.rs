//! Host paths, opened once and turned into mounts of our own.
//!
//! A path is opened with openat2 refusing every symbolic and magic link, and only the descriptor is used
//! after that: what the name points to later does not matter.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::error::{During, Failure, SetupStep};
use crate::plan::{JailPlan, WorkspacePlan};
use crate::sys::{self, attr};

/// The mounts a plan names, not yet attached anywhere.
pub(crate) struct Sources {
    /// With the path inside, in the order of the plan.
    pub(crate) binds: Vec<(OwnedFd, PathBuf)>,
    /// The workspace's directory.
    pub(crate) workspace: Option<OwnedFd>,
}

/// Maps the owner of a writable path to the user inside; only root can.
pub(crate) trait IdMaps {
    /// A user namespace for an idmapped mount of files owned by `uid` and `gid`.
    fn for_owner(&mut self, uid: u32, gid: u32) -> io::Result<BorrowedFd<'_>>;
}

impl Sources {
    /// Opens everything `plan` names. With `ids`, writable mounts show their owner as the user inside.
    pub(crate) fn open(plan: &JailPlan, mut ids: Option<&mut dyn IdMaps>) -> Result<Self, Failure> {
        let mut binds = Vec::with_capacity(plan.binds.len());
        for bind in &plan.binds {
            let tree = clone_tree(&bind.source).during(SetupStep::OpenSource, bind.source.display())?;
            seal(&tree, bind.writable, ids.as_deref_mut()).during(SetupStep::OpenSource, bind.source.display())?;
            binds.push((tree, bind.target.clone()));
        }
        let workspace = match plan.workspace.directory() {
            None => None,
            Some(directory) => {
                let tree = clone_tree(directory).during(SetupStep::OpenSource, directory.display())?;
                let writable = !matches!(plan.workspace, WorkspacePlan::ReadOnly { .. });
                seal(&tree, writable, ids).during(SetupStep::IdMapWorkspace, directory.display())?;
                Some(tree)
            }
        };
        Ok(Self { binds, workspace })
    }

    /// What was opened of `plan` elsewhere, in the order of [`Sources::mounts`].
    pub(crate) fn of(plan: &JailPlan, mounts: Vec<OwnedFd>) -> Self {
        let mut mounts = mounts.into_iter();
        let binds = mounts.by_ref().zip(plan.binds.iter().map(|bind| bind.target.clone()));
        Self { binds: binds.take(plan.binds.len()).collect(), workspace: mounts.next() }
    }

    /// All of them: the paths, then the workspace.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.binds.iter().map(|(tree, _)| tree).chain(&self.workspace).map(AsFd::as_fd)
    }
}

/// A private copy of the mount at `path`, with everything mounted below it.
pub(crate) fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let opened = rustix::fs::openat2(
        CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )?;
    clone_at(opened.as_fd(), "", OpenTreeFlags::AT_RECURSIVE)
}

/// A private copy of the mount at `path` under `dir`.
pub(crate) fn clone_at(dir: BorrowedFd<'_>, path: &str, extra: OpenTreeFlags) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(dir, path, flags | extra)?)
}

fn seal(tree: &OwnedFd, writable: bool, ids: Option<&mut (dyn IdMaps + '_)>) -> io::Result<()> {
    let common = attr::NOSUID | attr::NODEV;
    if !writable {
        return sys::mount_setattr(tree.as_fd(), common | attr::RDONLY, true, None);
    }
    sys::mount_setattr(tree.as_fd(), common, true, None)?;
    if let Some(ids) = ids {
        let owner = rustix::fs::fstat(tree)?;
        let userns = ids.for_owner(owner.st_uid, owner.st_gid)?;
        sys::mount_setattr(tree.as_fd(), attr::IDMAP, false, Some(userns))?;
    }
    Ok(())
}
