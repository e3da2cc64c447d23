//! Safe access to files below a directory that other processes may write.
//!
//! The kernel resolves each path in one call that refuses links and `..`, so nothing can be swapped between a check and an
//! open. Only regular files are opened for reading.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat};
use rustix::io::Errno;

use crate::review::FileStamp;

/// How often a resolution is retried when a concurrent rename disturbed it.
const TRIES: usize = 64;

/// Opens a directory by its full path, which must contain no link.
pub(crate) fn root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// Opens the directory `path` below `root`; an empty path is `root` itself.
pub(crate) fn directory(root: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    // Without NOFOLLOW a link fails with LOOP and a file with NOTDIR, so that the two can be distinguished.
    resolve(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens the regular file `path` below `root`; returns `None` when it does not exist or is not a regular file.
pub(crate) fn regular(root: impl AsFd, path: &Path) -> io::Result<Option<File>> {
    // Non-blocking, because opening a FIFO would wait for its writer. A socket fails with NXIO.
    let file = match resolve(root, path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY) {
        Ok(file) => file,
        Err(error) if is_absence(error) || error == Errno::NXIO => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let is_regular = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile;
    Ok(is_regular.then(|| File::from(file)))
}

/// Returns a path descriptor of the entry at `path` below `root`, without following a link. It can be read with fstat only.
pub(crate) fn path_handle(root: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    resolve(root, path, OFlags::PATH | OFlags::NOFOLLOW)
}

/// Returns the stamp of the entry at `path` below `root`, without following a link; `None` when it does not exist.
pub(crate) fn stamp(root: impl AsFd, path: &Path) -> rustix::io::Result<Option<FileStamp>> {
    match path_handle(root, path) {
        Ok(found) => Ok(Some(FileStamp::of(&fstat(&found)?))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the target of the link `path` below `root`; `None` when it does not exist or is not a link.
pub(crate) fn link(root: &OwnedFd, path: &Path) -> io::Result<Option<PathBuf>> {
    let Some(name) = path.file_name() else { return Ok(None) };
    let parent = path.parent().unwrap_or(Path::new(""));
    match directory(root, parent).and_then(|parent| readlinkat(&parent, name, Vec::new())) {
        Ok(target) => Ok(Some(OsString::from_vec(target.into_bytes()).into())),
        Err(Errno::INVAL) => Ok(None),
        Err(error) if is_absence(error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the error means that the path does not exist or passes through a link.
pub(crate) fn is_absence(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV)
}

/// Returns the names in an open directory, without `.` and `..`.
pub(crate) fn names(directory: &OwnedFd) -> io::Result<impl Iterator<Item = io::Result<CString>>> {
    let entries = Dir::read_from(directory)?;
    Ok(entries.filter_map(|entry| match entry {
        Ok(entry) if entry.file_name() == c"." || entry.file_name() == c".." => None,
        Ok(entry) => Some(Ok(entry.file_name().to_owned())),
        Err(error) => Some(Err(error.into())),
    }))
}

fn resolve(root: impl AsFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    for _ in 1..TRIES {
        match openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), within) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), within)
}
