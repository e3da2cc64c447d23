//! A plan laid out in the host's own tree, for an engine that mounts by path.
//!
//! Everything lies in one size-limited file system at one place, which only root can enter: the writable
//! directories, the workspace with its layers, the host paths with their owner mapped, the placed files. To let go
//! of the place is to let go of all of it. Only root can make one, or for an engine of its own any user (`quarters`).

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use base::{HOME, WORKSPACE};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat};
use rustix::mount::{OpenTreeFlags, UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::error::{During, Failure, JailError, SetupStep};
use crate::guard;
use crate::host_user::HostUser;
use crate::layering::Layering;
use crate::plan::{JailPlan, WorkspacePlan};
use crate::quarters::EngineNamespaces;
use crate::root::{attach, tmpfs};
use crate::source::{IdMaps, Sources, clone_at};
use crate::spawner::Spawner;

/// One path of the stage, and where it is shown inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutMount {
    /// On the host, below the place.
    pub source: PathBuf,
    /// Inside.
    pub target: PathBuf,
    /// Whether it can be written through.
    pub writable: bool,
}

/// What was laid out. It ends when it is dropped.
#[derive(Debug)]
pub struct MountLayout {
    place: PathBuf,
    /// What to mount where.
    pub mounts: Vec<LayoutMount>,
    /// The directory that holds the changes of an overlay workspace; it outlives the stage.
    pub upper: Option<OwnedFd>,
}

impl MountLayout {
    /// Lays `plan` out at `place`, a directory that is there and empty: for all to see, or within `quarters`. There
    /// nobody outside has to unmount it: to remove the place is enough.
    pub fn make(
        spawner: &Spawner,
        place: &Path,
        plan: &JailPlan,
        quarters: Option<&EngineNamespaces>,
    ) -> Result<Self, JailError> {
        let (mounts, upper) = spawner.stage(place, plan, quarters)?;
        Ok(Self { place: place.to_owned(), mounts, upper })
    }

    /// Takes down what a host that died has left at `place`; nothing there is fine.
    pub fn sweep(place: &Path) {
        // As many as were made over each other; what is no mount ends it.
        while unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
    }
}

impl Drop for MountLayout {
    fn drop(&mut self) {
        Self::sweep(&self.place);
    }
}

/// Lays `plan` out at `place`, as root of where this is; with `ids`, what others own is shown as the user's inside.
pub(crate) fn lay_out(
    place: &Path,
    plan: &JailPlan,
    owner: HostUser,
    ids: Option<&mut dyn IdMaps>,
) -> Result<(Vec<LayoutMount>, Option<OwnedFd>), Failure> {
    if !owner.privileged {
        return Err(Failure { step: SetupStep::Scratch, subject: place.display().to_string(), errno: libc::EPERM });
    }
    let sources = Sources::open(plan, ids)?;
    let scratch = tmpfs(plan.disk_bytes, plan.disk_inodes, 0o700).during(SetupStep::Scratch, "tmpfs")?;
    attach(&scratch, rustix::fs::CWD, place).during(SetupStep::Scratch, place.display())?;
    let laid = Layout { scratch, place, owner, mounts: Vec::new() }.fill(plan, &sources);
    if laid.is_err() {
        MountLayout::sweep(place);
    }
    laid
}

/// A stage under construction.
struct Layout<'a> {
    scratch: OwnedFd,
    place: &'a Path,
    owner: HostUser,
    mounts: Vec<LayoutMount>,
}

impl Layout<'_> {
    fn fill(mut self, plan: &JailPlan, sources: &Sources) -> Result<(Vec<LayoutMount>, Option<OwnedFd>), Failure> {
        for (name, mode, target) in [("tmp", 0o1777, "/tmp"), ("home", 0o755, HOME), ("shm", 0o1777, "/dev/shm")] {
            self.directory(name, mode).during(SetupStep::Scratch, name)?;
            self.show(name, Path::new(target), true);
        }
        let upper = self.workspace(&plan.workspace, sources).during(SetupStep::MountWorkspace, WORKSPACE)?;
        self.show("workspace", Path::new(WORKSPACE), !matches!(plan.workspace, WorkspacePlan::ReadOnly { .. }));
        for (number, ((tree, target), bind)) in sources.binds.iter().zip(&plan.binds).enumerate() {
            let name = format!("bind{number}");
            self.stand_on(&name, tree)
                .and_then(|()| attach(tree, &self.scratch, &name))
                .during(SetupStep::MountSystem, target.display())?;
            self.show(&name, target, bind.writable);
        }
        for (number, (path, content)) in plan.files.iter().enumerate() {
            self.place_file(number, path, content).during(SetupStep::PlaceFiles, path.display())?;
        }
        Ok((self.mounts, upper))
    }

    /// The workspace under its own name; with an overlay, also the layer that holds changes.
    fn workspace(&self, plan: &WorkspacePlan, sources: &Sources) -> io::Result<Option<OwnedFd>> {
        let at = self.place.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        // Characters with which an overlay would part its layers.
        if at.contains([':', ',', '\\']) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let layering = Layering { scratch: &self.scratch, at, owner: Some(self.owner) };
        self.directory("workspace", 0o755)?;
        match (plan, &sources.workspace) {
            (WorkspacePlan::Overlay { masks, .. }, Some(lower)) => {
                let (merged, upper) = layering.overlay(lower, masks)?;
                attach(&merged, &self.scratch, "workspace")?;
                Ok(Some(upper))
            }
            (WorkspacePlan::ReadOnly { masks, .. }, Some(lower)) if !masks.is_empty() => {
                attach(&layering.masked(lower, masks)?, &self.scratch, "workspace")?;
                Ok(None)
            }
            (WorkspacePlan::Bind { hidden, kept, .. }, Some(tree)) => {
                attach(tree, &self.scratch, "workspace")?;
                self.directory("empty", 0o555)?;
                let empty = clone_at(self.scratch.as_fd(), "empty", OpenTreeFlags::empty())?;
                guard::keep(tree, kept)?;
                guard::hide(tree, hidden, empty.as_fd())?;
                Ok(None)
            }
            (_, Some(tree)) => attach(tree, &self.scratch, "workspace").map(|()| None),
            (_, None) => Ok(None),
        }
    }

    /// Files of the home lie in it and are the user's own; any other is shown by itself, read-only.
    fn place_file(&mut self, number: usize, path: &Path, content: &[u8]) -> io::Result<()> {
        let Ok(within) = path.strip_prefix(HOME) else {
            let name = format!("file{number}");
            self.write(Path::new(&name), content)?;
            self.show(&name, path, false);
            return Ok(());
        };
        let mut made = PathBuf::from("home");
        for part in within.parent().into_iter().flat_map(Path::components) {
            made.push(part);
            match mkdirat(&self.scratch, &made, Mode::from_raw_mode(0o755)) {
                Err(rustix::io::Errno::EXIST) | Ok(()) => self.owner.take(&self.scratch, &made)?,
                Err(error) => return Err(error.into()),
            }
        }
        let path = Path::new("home").join(within);
        self.write(&path, content)?;
        self.owner.take(&self.scratch, &path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.scratch, path, flags, Mode::from_raw_mode(0o644))?;
        std::fs::File::from(file).write_all(content)?;
        Ok(rustix::fs::chmodat(&self.scratch, path, Mode::from_raw_mode(0o644), AtFlags::empty())?)
    }

    fn directory(&self, name: &str, mode: u32) -> io::Result<()> {
        mkdirat(&self.scratch, name, Mode::from_raw_mode(mode))?;
        // What the process's mask took away.
        rustix::fs::chmodat(&self.scratch, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        self.owner.take(&self.scratch, Path::new(name))
    }

    /// Something of the kind of `tree` for it to stand on.
    fn stand_on(&self, name: &str, tree: &OwnedFd) -> io::Result<()> {
        if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode).is_dir() {
            return self.directory(name, 0o755);
        }
        self.write(Path::new(name), b"")
    }

    fn show(&mut self, name: &str, target: &Path, writable: bool) {
        self.mounts.push(LayoutMount { source: self.place.join(name), target: target.to_owned(), writable });
    }
}
