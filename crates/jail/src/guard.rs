//! Denials in a workspace that is written through: mounts over the files themselves.
//!
//! There is no layer between such a workspace and the host, so only what exists when the sandbox is made can be
//! held: a mount point cannot be renamed, replaced or removed. A name that appears later is not held.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount};

use crate::source::{clone_at, clone_tree};
use crate::sys::{self, attr};

/// Shows nothing at any of `paths`: an empty directory, or a file that is always empty.
pub(crate) fn hide(workspace: &OwnedFd, paths: &[PathBuf], empty: BorrowedFd<'_>) -> io::Result<()> {
    each(workspace, paths, |_, kind| match kind {
        FileType::Directory => clone_at(empty, "", OpenTreeFlags::empty()),
        _ => clone_tree(Path::new("/dev/null")),
    })
}

/// Keeps `paths`, with all below them, from being changed.
pub(crate) fn keep(workspace: &OwnedFd, paths: &[PathBuf]) -> io::Result<()> {
    each(workspace, paths, |place, _| clone_at(place, "", OpenTreeFlags::AT_RECURSIVE))
}

/// Mounts what `shown` gives over each path, read-only.
fn each(
    workspace: &OwnedFd,
    paths: &[PathBuf],
    shown: impl Fn(BorrowedFd<'_>, FileType) -> io::Result<OwnedFd>,
) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for path in paths {
        let place =
            match openat2(workspace, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
                // It went away, or became a link, since it was listed; what it leads to is judged by its own name.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                place => place?,
            };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
        let tree = shown(place.as_fd(), kind)?;
        sys::mount_setattr(tree.as_fd(), attr::RDONLY | attr::NOSUID | attr::NODEV, true, None)?;
        let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&tree, "", &place, "", by_descriptor)?;
    }
    Ok(())
}
