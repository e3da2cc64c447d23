//! The mask layer of an overlay: whiteouts hide files of the workspace, and covers replace the content of others. It changes
//! nothing else.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, chmodat, fstat, makedev, mkdirat, mknodat,
    openat, openat2, utimensat,
};
use rustix::io::Errno;

use crate::plan::CoverFile;

/// The entries of a mask layer.
#[derive(Clone, Copy)]
pub(crate) struct MaskEntries<'a> {
    /// Paths that do not exist inside the sandbox.
    pub(crate) masks: &'a [PathBuf],
    /// Files that have other content inside the sandbox.
    pub(crate) covers: &'a [CoverFile],
}

impl<'a> MaskEntries<'a> {
    /// Returns whether the layer is not needed.
    pub(crate) fn is_empty(&self) -> bool {
        self.masks.is_empty() && self.covers.is_empty()
    }

    /// Returns all paths of the layer.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &'a PathBuf> {
        self.masks.iter().chain(self.covers.iter().map(|cover| &cover.path))
    }
}

/// Fills the mask layer. Directories above its entries keep the attributes they have in `lower`, and so do covered files.
pub(crate) fn fill(mask: &OwnedFd, lower: &OwnedFd, entries: MaskEntries<'_>) -> io::Result<()> {
    let mut parents = BTreeSet::new();
    for path in entries.paths() {
        make_parents(mask, path)?;
        parents.extend(path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()));
    }
    for path in entries.masks {
        mknodat(mask, path, FileType::CharacterDevice, Mode::empty(), makedev(0, 0))?;
    }
    for cover in entries.covers {
        write_cover(mask, &cover.path, &cover.content)?;
        match copy_attributes(mask, lower, &cover.path, OFlags::empty()) {
            // The file is a link, which the cover replaces.
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {}
            other => other?,
        }
    }
    // A merged directory has the attributes of its topmost layer. They are set last, children first, because a new entry
    // changes its directory's time.
    for parent in parents.into_iter().rev() {
        copy_attributes(mask, lower, parent, OFlags::DIRECTORY)?;
    }
    Ok(())
}

/// Makes the parents of `path`: ordinary directories, which merge with those below.
fn make_parents(mask: &OwnedFd, path: &Path) -> io::Result<()> {
    let mut made = PathBuf::new();
    for part in path.parent().into_iter().flat_map(Path::components) {
        made.push(part);
        match mkdirat(mask, &made, Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes a new file.
pub(crate) fn write_cover(directory: &OwnedFd, path: &Path, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(openat(directory, path, flags, Mode::from_raw_mode(0o644))?);
    file.write_all(content)
}

/// Gives an entry of the mask layer the mode and times of the entry below it.
fn copy_attributes(mask: &OwnedFd, lower: &OwnedFd, path: &Path, kind: OFlags) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | kind;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let lower_stat = fstat(openat2(lower, path, flags, Mode::empty(), within)?)?;
    chmodat(mask, path, Mode::from_raw_mode(lower_stat.st_mode & 0o7777), AtFlags::empty())?;
    let time = |secs, nanos| Timespec { tv_sec: secs, tv_nsec: i64::try_from(nanos).unwrap_or_default() };
    let times = Timestamps {
        last_access: time(lower_stat.st_atime, lower_stat.st_atime_nsec),
        last_modification: time(lower_stat.st_mtime, lower_stat.st_mtime_nsec),
    };
    Ok(utimensat(mask, path, &times, AtFlags::empty())?)
}
