//! The layer that hides files: paths named here do not exist inside, and everything around them is as it is.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, chmodat, fstat, makedev, mkdirat, mknodat,
    openat2, utimensat,
};
use rustix::io::Errno;

/// Fills the layer: `paths` do not exist in the layers below, all else is as in `lower`.
pub(crate) fn hide(mask: &OwnedFd, lower: &OwnedFd, paths: &[PathBuf]) -> io::Result<()> {
    let mut parents = BTreeSet::new();
    for path in paths {
        whiteout(mask, path)?;
        parents.extend(path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()));
    }
    // A merged directory shows the attributes of its topmost layer. They are set when all names are made,
    // children first, for a new name changes a directory's time.
    for parent in parents.into_iter().rev() {
        look_like(mask, lower, parent)?;
    }
    Ok(())
}

/// Marks `path` as not existing in the layers below; its parents become ordinary directories that merge.
fn whiteout(mask: &OwnedFd, path: &Path) -> io::Result<()> {
    let mut made = PathBuf::new();
    for part in path.parent().into_iter().flat_map(Path::components) {
        made.push(part);
        match mkdirat(mask, &made, Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(mknodat(mask, path, FileType::CharacterDevice, Mode::empty(), makedev(0, 0))?)
}

/// Gives a directory of the mask layer the mode and times of the one below it.
fn look_like(mask: &OwnedFd, lower: &OwnedFd, path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let shown = fstat(openat2(lower, path, flags, Mode::empty(), within)?)?;
    chmodat(mask, path, Mode::from_raw_mode(shown.st_mode & 0o7777), AtFlags::empty())?;
    let time = |secs, nanos| Timespec { tv_sec: secs, tv_nsec: i64::try_from(nanos).unwrap_or_default() };
    let times = Timestamps {
        last_access: time(shown.st_atime, shown.st_atime_nsec),
        last_modification: time(shown.st_mtime, shown.st_mtime_nsec),
    };
    Ok(utimensat(mask, path, &times, AtFlags::empty())?)
}
