//! The mount layout of a container: a plan laid out as paths of the host, for an engine that mounts by path.
//!
//! One size-limited file system, which only root can enter, holds the writable directories, the workspace with its
//! layers, the host paths with their owner mapped, and the placed files. Unmounting it removes all of them. Only root can
//! make a layout, except in the namespaces of the user's own engine (`engine_namespaces`).

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use base::{HOME, WORKSPACE};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat};
use rustix::mount::{OpenTreeFlags, UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::engine_namespaces::EngineNamespaces;
use crate::error::{During, JailError, SetupFailure, SetupStep};
use crate::guard;
use crate::host_user::HostUser;
use crate::mask::MaskEntries;
use crate::mount_sources::{IdMaps, MountSources, clone_at};
use crate::overlay::OverlayBuilder;
use crate::plan::{JailPlan, WorkspacePlan};
use crate::private_root::{attach, tmpfs};
use crate::spawner::Spawner;

/// One path of the layout, and its path inside the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutMount {
    /// The path on the host, below the layout's directory.
    pub source: PathBuf,
    /// The path inside the sandbox.
    pub target: PathBuf,
    /// Whether the mount is writable.
    pub writable: bool,
}

/// A plan that was laid out. Dropping it unmounts it.
#[derive(Debug)]
pub struct MountLayout {
    directory: PathBuf,
    /// The mounts to give to the engine.
    pub mounts: Vec<LayoutMount>,
    /// The directory that holds the changes of an overlay workspace; it outlives the layout.
    pub upper: Option<OwnedFd>,
}

impl MountLayout {
    /// Lays `plan` out at `directory`, which must exist and be empty: in the host's mounts, or in those of `engine`.
    /// A layout in an engine's mounts needs no unmounting from outside: removing the directory is enough.
    pub fn make(
        spawner: &Spawner,
        directory: &Path,
        plan: &JailPlan,
        engine: Option<&EngineNamespaces>,
    ) -> Result<Self, JailError> {
        let (mounts, upper) = spawner.lay_out(directory, plan, engine)?;
        Ok(Self { directory: directory.to_owned(), mounts, upper })
    }

    /// Unmounts the layout that a dead host left at `directory`, if there is one.
    pub fn sweep(directory: &Path) {
        // Several layouts may be stacked; unmounting fails when none is left.
        while unmount(directory, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
    }
}

impl Drop for MountLayout {
    fn drop(&mut self) {
        Self::sweep(&self.directory);
    }
}

/// Lays `plan` out at `directory`. The caller must be root in its user namespace. With `ids`, writable files appear as
/// owned by the sandbox user.
pub(crate) fn lay_out(
    directory: &Path,
    plan: &JailPlan,
    owner: HostUser,
    ids: Option<&mut dyn IdMaps>,
) -> Result<(Vec<LayoutMount>, Option<OwnedFd>), SetupFailure> {
    if !owner.privileged {
        return Err(SetupFailure {
            step: SetupStep::Scratch,
            subject: directory.display().to_string(),
            errno: libc::EPERM,
        });
    }
    let sources = MountSources::open(plan, ids)?;
    let scratch = tmpfs(plan.disk_bytes, plan.disk_inodes, 0o700).during(SetupStep::Scratch, "tmpfs")?;
    attach(&scratch, rustix::fs::CWD, directory).during(SetupStep::Scratch, directory.display())?;
    let laid_out = LayoutBuilder { scratch, directory, owner, mounts: Vec::new() }.fill(plan, &sources);
    if laid_out.is_err() {
        MountLayout::sweep(directory);
    }
    laid_out
}

/// A layout under construction.
struct LayoutBuilder<'a> {
    scratch: OwnedFd,
    directory: &'a Path,
    owner: HostUser,
    mounts: Vec<LayoutMount>,
}

impl LayoutBuilder<'_> {
    fn fill(
        mut self,
        plan: &JailPlan,
        sources: &MountSources,
    ) -> Result<(Vec<LayoutMount>, Option<OwnedFd>), SetupFailure> {
        for (name, mode, target) in [("tmp", 0o1777, "/tmp"), ("home", 0o755, HOME), ("shm", 0o1777, "/dev/shm")] {
            self.make_directory(name, mode).during(SetupStep::Scratch, name)?;
            self.add_mount(name, Path::new(target), true);
        }
        let upper = self.lay_out_workspace(&plan.workspace, sources).during(SetupStep::MountWorkspace, WORKSPACE)?;
        self.add_mount("workspace", Path::new(WORKSPACE), !matches!(plan.workspace, WorkspacePlan::ReadOnly { .. }));
        for (number, ((tree, target), bind)) in sources.binds.iter().zip(&plan.binds).enumerate() {
            let name = format!("bind{number}");
            self.make_mount_point(&name, tree)
                .and_then(|()| attach(tree, &self.scratch, &name))
                .during(SetupStep::MountSystem, target.display())?;
            self.add_mount(&name, target, bind.writable);
        }
        for (number, (path, content)) in plan.files.iter().enumerate() {
            self.place_file(number, path, content).during(SetupStep::PlaceFiles, path.display())?;
        }
        Ok((self.mounts, upper))
    }

    /// Lays the workspace out at `workspace`; with an overlay, returns the layer that holds changes.
    fn lay_out_workspace(&self, plan: &WorkspacePlan, sources: &MountSources) -> io::Result<Option<OwnedFd>> {
        let at = self.directory.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        // These characters separate options and layers of an overlay.
        if at.contains([':', ',', '\\']) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let builder = OverlayBuilder { scratch: &self.scratch, at, folder: "", owner: Some(self.owner) };
        self.make_directory("workspace", 0o755)?;
        match (plan, &sources.workspace) {
            (WorkspacePlan::Overlay { masks, covers, .. }, Some(lower)) => {
                let (merged, upper) = builder.overlay(lower, MaskEntries { masks, covers })?;
                attach(&merged, &self.scratch, "workspace")?;
                Ok(Some(upper))
            }
            (WorkspacePlan::ReadOnly { masks, covers, .. }, Some(lower)) if !masks.is_empty() || !covers.is_empty() => {
                attach(&builder.masked(lower, MaskEntries { masks, covers })?, &self.scratch, "workspace")?;
                Ok(None)
            }
            (WorkspacePlan::Bind { hidden, covers, protected, .. }, Some(tree)) => {
                attach(tree, &self.scratch, "workspace")?;
                self.make_directory("empty", 0o555)?;
                let empty = clone_at(self.scratch.as_fd(), "empty", OpenTreeFlags::empty())?;
                guard::protect(tree, protected)?;
                guard::cover(tree, covers, &self.scratch)?;
                guard::hide(tree, hidden, empty.as_fd())?;
                Ok(None)
            }
            (_, Some(tree)) => attach(tree, &self.scratch, "workspace").map(|()| None),
            (_, None) => Ok(None),
        }
    }

    /// Places a file. A file of the home lies there and belongs to the sandbox user; any other is a read-only mount.
    fn place_file(&mut self, number: usize, path: &Path, content: &[u8]) -> io::Result<()> {
        let Ok(in_home) = path.strip_prefix(HOME) else {
            let name = format!("file{number}");
            self.write(Path::new(&name), content)?;
            self.add_mount(&name, path, false);
            return Ok(());
        };
        let mut made = PathBuf::from("home");
        for part in in_home.parent().into_iter().flat_map(Path::components) {
            made.push(part);
            match mkdirat(&self.scratch, &made, Mode::from_raw_mode(0o755)) {
                Err(rustix::io::Errno::EXIST) | Ok(()) => self.owner.chown(&self.scratch, &made)?,
                Err(error) => return Err(error.into()),
            }
        }
        let path = Path::new("home").join(in_home);
        self.write(&path, content)?;
        self.owner.chown(&self.scratch, &path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.scratch, path, flags, Mode::from_raw_mode(0o644))?;
        std::fs::File::from(file).write_all(content)?;
        Ok(rustix::fs::chmodat(&self.scratch, path, Mode::from_raw_mode(0o644), AtFlags::empty())?)
    }

    fn make_directory(&self, name: &str, mode: u32) -> io::Result<()> {
        mkdirat(&self.scratch, name, Mode::from_raw_mode(mode))?;
        // mkdirat applies the process's umask; chmodat does not.
        rustix::fs::chmodat(&self.scratch, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        self.owner.chown(&self.scratch, Path::new(name))
    }

    /// Makes a mount point for `tree`: a directory or an empty file.
    fn make_mount_point(&self, name: &str, tree: &OwnedFd) -> io::Result<()> {
        if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode).is_dir() {
            return self.make_directory(name, 0o755);
        }
        self.write(Path::new(name), b"")
    }

    fn add_mount(&mut self, name: &str, target: &Path, writable: bool) {
        self.mounts.push(LayoutMount { source: self.directory.join(name), target: target.to_owned(), writable });
    }
}
