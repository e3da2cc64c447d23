//! One entry of a directory on the host, accessed without following links.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, chownat, fchmod, fchown, fstat, futimens,
    openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::beneath;
use crate::review::content_store::{self, ContentStore};
use crate::review::{FileStamp, SavedEntry};

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct DirectoryEntry {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
}

impl DirectoryEntry {
    /// Returns the entry `path` below `root`. Fails with `NOENT` when its directory does not exist.
    pub(crate) fn find(root: &OwnedFd, path: &Path) -> rustix::io::Result<Self> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        Ok(Self { directory: beneath::directory(root, path.parent().unwrap_or(Path::new("")))?, name })
    }

    /// Returns another entry of the same directory.
    pub(crate) fn beside(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        Ok(Self { directory: self.directory.try_clone()?, name: name.as_ref().to_owned() })
    }

    /// Returns the stamp of the entry; `None` when it does not exist.
    pub(crate) fn stamp(&self) -> io::Result<Option<FileStamp>> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileStamp::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn link(&self) -> io::Result<PathBuf> {
        let target = readlinkat(&self.directory, &self.name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    fn regular(&self) -> io::Result<Option<File>> {
        beneath::regular(&self.directory, Path::new(&self.name))
    }

    /// Returns whether the file or link is exactly `entry`.
    pub(crate) fn holds(&self, entry: &SavedEntry) -> io::Result<bool> {
        let Some(stamp) = self.stamp()? else { return Ok(false) };
        match entry {
            SavedEntry::Symlink { target } => {
                Ok(stamp.kind() == rustix::fs::FileType::Symlink && self.link()? == *target)
            }
            SavedEntry::Regular { mode, size, sha256 } => {
                if stamp.size != *size || stamp.permissions() != *mode {
                    return Ok(false);
                }
                let Some(mut file) = self.regular()? else { return Ok(false) };
                Ok(content_store::digest(&mut file)? == *sha256)
            }
            _ => Ok(false),
        }
    }

    /// Returns whether both are the same kind of file with the same permissions and content.
    pub(crate) fn equals(&self, other: &Self) -> io::Result<bool> {
        let (Some(one), Some(two)) = (self.stamp()?, other.stamp()?) else { return Ok(false) };
        if one.mode != two.mode || one.size != two.size {
            return Ok(false);
        }
        match (self.regular()?, other.regular()?) {
            (Some(mut one), Some(mut two)) => content_store::are_equal(&mut one, &mut two),
            (None, None) => Ok(self.link()? == other.link()?),
            _ => Ok(false),
        }
    }

    /// Writes `entry`, which must not exist. Its owner is that of `like`, or of the directory.
    pub(crate) fn write(&self, entry: &SavedEntry, kept: &ContentStore, like: &Self) -> io::Result<Option<File>> {
        match entry {
            SavedEntry::Symlink { target } => {
                symlinkat(target, &self.directory, &self.name)?;
                if let Some((user, group)) = owner_like(like)? {
                    chownat(&self.directory, &self.name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
                }
                Ok(None)
            }
            SavedEntry::Regular { mode, sha256, .. } => {
                let mut file = self.create()?;
                kept.copy_to(sha256, &mut file)?;
                if let Some((user, group)) = owner_like(like)? {
                    fchown(&file, Some(user), Some(group))?;
                }
                fchmod(&file, Mode::from_raw_mode(*mode & 0o777))?;
                Ok(Some(file))
            }
            _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
    }

    /// Makes this entry, which must not exist, a copy of `other` with the same times.
    pub(crate) fn copy_of(&self, other: &Self) -> io::Result<()> {
        let Some(mut source) = other.regular()? else {
            return Ok(symlinkat(other.link()?, &self.directory, &self.name)?);
        };
        let stat = fstat(&source)?;
        let mut file = self.create()?;
        content_store::copy(&mut source, &mut file, u64::MAX)?;
        if rustix::process::geteuid().is_root() {
            fchown(&file, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
        }
        fchmod(&file, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
        let time = Timespec { tv_sec: stat.st_mtime, tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or_default() };
        futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
        file.sync_all()
    }

    fn create(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.directory, &self.name, flags, Mode::from_raw_mode(0o600))?.into())
    }

    /// Exchanges the two entries in one call, so that neither is ever missing.
    pub(crate) fn exchange(&self, other: &Self) -> rustix::io::Result<()> {
        renameat_with(&self.directory, &self.name, &other.directory, &other.name, RenameFlags::EXCHANGE)
    }

    /// Moves the entry to `other`, which must not exist.
    pub(crate) fn move_to(&self, other: &Self) -> rustix::io::Result<()> {
        match renameat_with(&self.directory, &self.name, &other.directory, &other.name, RenameFlags::NOREPLACE) {
            // Some network file systems do not support the flag, so this checks first and then moves.
            Err(Errno::INVAL | Errno::NOSYS) => {
                match statat(&other.directory, &other.name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(_) => Err(Errno::EXIST),
                    Err(Errno::NOENT) => renameat(&self.directory, &self.name, &other.directory, &other.name),
                    Err(error) => Err(error),
                }
            }
            other => other,
        }
    }

    /// Removes a file or link, if it exists.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match unlinkat(&self.directory, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn sync_directory(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.directory)?)
    }
}

/// Returns the owner of `like`, or of its directory when it does not exist; `None` without root. Only root can change the
/// owner of files, and only root needs to, because it may apply changes for another user.
pub(crate) fn owner_like(like: &DirectoryEntry) -> io::Result<Option<(Uid, Gid)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let stat = match statat(&like.directory, &like.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => fstat(&like.directory)?,
        other => other?,
    };
    Ok(Some((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid))))
}
