//! Host paths of a plan, opened once and cloned into private mounts.
//!
//! Each path is opened with openat2, which refuses symbolic and magic links. Only the descriptor is used afterwards, so a
//! later change of the path has no effect.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::error::{During, SetupFailure, SetupStep};
use crate::plan::{JailPlan, WorkspacePlan};
use crate::sys::{self, attr};

/// The mounts that a plan names, not yet attached.
pub(crate) struct MountSources {
    /// Each mount with its path inside, in the order of the plan.
    pub(crate) binds: Vec<(OwnedFd, PathBuf)>,
    /// The directories of the plan's layers, in its order.
    pub(crate) layers: Vec<OwnedFd>,
    /// The directory of the workspace.
    pub(crate) workspace: Option<OwnedFd>,
}

/// Maps the owner of a writable path to the sandbox user. Needs root.
pub(crate) trait IdMaps {
    /// Returns a user namespace for an idmapped mount of files owned by `uid` and `gid`.
    fn for_owner(&mut self, uid: u32, gid: u32) -> io::Result<BorrowedFd<'_>>;
}

impl MountSources {
    /// Opens every path that `plan` names. With `ids`, writable mounts show their owner as the sandbox user.
    pub(crate) fn open(plan: &JailPlan, mut ids: Option<&mut dyn IdMaps>) -> Result<Self, SetupFailure> {
        let mut binds = Vec::with_capacity(plan.binds.len());
        for bind in &plan.binds {
            let tree = clone_tree(&bind.source).during(SetupStep::OpenSource, bind.source.display())?;
            restrict(&tree, bind.writable, ids.as_deref_mut()).during(SetupStep::OpenSource, bind.source.display())?;
            binds.push((tree, bind.target.clone()));
        }
        let mut layers = Vec::with_capacity(plan.layers.len());
        for layer in &plan.layers {
            let tree = clone_tree(&layer.directory).during(SetupStep::OpenSource, layer.directory.display())?;
            // The id map also lets the sandbox user read files that only their owner can read. The tree itself is never
            // attached writable: it is the lower layer of an overlay, or made read-only after this.
            restrict(&tree, true, ids.as_deref_mut()).during(SetupStep::IdMapOwner, layer.directory.display())?;
            sys::mount_setattr(tree.as_fd(), attr::RDONLY, true, None)
                .during(SetupStep::OpenSource, layer.directory.display())?;
            layers.push(tree);
        }
        let workspace = match plan.workspace.directory() {
            None => None,
            Some(directory) => {
                let tree = clone_tree(directory).during(SetupStep::OpenSource, directory.display())?;
                let writable = !matches!(plan.workspace, WorkspacePlan::ReadOnly { .. });
                restrict(&tree, writable, ids).during(SetupStep::IdMapOwner, directory.display())?;
                Some(tree)
            }
        };
        Ok(Self { binds, layers, workspace })
    }

    /// Returns the sources of `plan` from mounts that the spawner opened, in the order of [`MountSources::mounts`].
    pub(crate) fn of(plan: &JailPlan, mounts: Vec<OwnedFd>) -> Self {
        let mut mounts = mounts.into_iter();
        let targets = plan.binds.iter().map(|bind| bind.target.clone());
        let binds = targets.zip(mounts.by_ref()).map(|(target, tree)| (tree, target)).collect();
        Self { binds, layers: mounts.by_ref().take(plan.layers.len()).collect(), workspace: mounts.next() }
    }

    /// Returns all mounts: the paths, the layers, then the workspace.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.binds.iter().map(|(tree, _)| tree).chain(&self.layers).chain(&self.workspace).map(AsFd::as_fd)
    }
}

/// Returns a private copy of the mount at `path`, with everything mounted below it.
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

/// Returns a private copy of the mount at `path` under `dir`.
pub(crate) fn clone_at(dir: BorrowedFd<'_>, path: &str, extra: OpenTreeFlags) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(dir, path, flags | extra)?)
}

/// Sets the attributes of a mount: no set-id programs, no devices, read-only unless `writable`, and the id map.
fn restrict(tree: &OwnedFd, writable: bool, ids: Option<&mut (dyn IdMaps + '_)>) -> io::Result<()> {
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
