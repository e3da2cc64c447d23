//! Mounts that enforce file denials in a bind workspace.
//!
//! A bind workspace has no layer between the sandbox and the host. So each denied file that exists when the sandbox is
//! made gets a mount over it, and a mount point cannot be renamed, replaced or removed. Files that appear later are not
//! covered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount};

use crate::mask::write_cover;
use crate::mount_sources::{clone_at, clone_tree};
use crate::plan::CoverFile;
use crate::sys::{self, attr};

/// Hides `paths`: each appears as an empty directory, or as a file that is always empty.
pub(crate) fn hide(workspace: &OwnedFd, paths: &[PathBuf], empty: BorrowedFd<'_>) -> io::Result<()> {
    mount_over(workspace, paths, |_, kind| match kind {
        FileType::Directory => clone_at(empty, "", OpenTreeFlags::empty()),
        _ => clone_tree(Path::new("/dev/null")),
    })
}

/// Gives files other content, which cannot be changed. The contents are written to `scratch`.
pub(crate) fn cover(workspace: &OwnedFd, covers: &[CoverFile], scratch: &OwnedFd) -> io::Result<()> {
    for (number, cover) in covers.iter().enumerate() {
        let name = format!("cover-{number}");
        write_cover(scratch, Path::new(&name), &cover.content)?;
        let path = std::slice::from_ref(&cover.path);
        mount_over(workspace, path, |_, _| clone_at(scratch.as_fd(), &name, OpenTreeFlags::empty()))?;
    }
    Ok(())
}

/// Makes `paths`, with everything below them, read-only.
pub(crate) fn protect(workspace: &OwnedFd, paths: &[PathBuf]) -> io::Result<()> {
    mount_over(workspace, paths, |target, _| clone_at(target, "", OpenTreeFlags::AT_RECURSIVE))
}

/// Mounts the tree that `cover` returns over each path, read-only.
fn mount_over(
    workspace: &OwnedFd,
    paths: &[PathBuf],
    cover: impl Fn(BorrowedFd<'_>, FileType) -> io::Result<OwnedFd>,
) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for path in paths {
        let target =
            match openat2(workspace, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
                // The path disappeared or became a link since it was listed. A link's target has its own entry if denied.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                target => target?,
            };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&target)?.st_mode);
        let tree = cover(target.as_fd(), kind)?;
        sys::mount_setattr(tree.as_fd(), attr::RDONLY | attr::NOSUID | attr::NODEV, true, None)?;
        let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&tree, "", &target, "", by_descriptor)?;
    }
    Ok(())
}
