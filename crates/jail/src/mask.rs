//! The mask layer of an overlay: a layer of whiteouts that hides files of the workspace and changes nothing else.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, chmodat, fstat, makedev, mkdirat, mknodat,
    openat2, utimensat,
};
use rustix::io::Errno;

/// Fills the mask layer with whiteouts for `paths`. Directories above them keep the attributes they have in `lower`.
pub(crate) fn hide(mask: &OwnedFd, lower: &OwnedFd, paths: &[PathBuf]) -> io::Result<()> {
    let mut parents = BTreeSet::new();
    for path in paths {
        whiteout(mask, path)?;
        parents.extend(path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()));
    }
    // A merged directory has the attributes of its topmost layer. They are set last, children first, because a new entry
    // changes its directory's time.
    for parent in parents.into_iter().rev() {
        copy_attributes(mask, lower, parent)?;
    }
    Ok(())
}

/// Makes a whiteout at `path`. Its parents become ordinary directories, which merge with those below.
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

/// Gives a directory of the mask layer the mode and times of the directory below it.
fn copy_attributes(mask: &OwnedFd, lower: &OwnedFd, path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
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
