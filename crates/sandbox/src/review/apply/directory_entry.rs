//! One name in one directory of the host, reached without following a link.

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
    /// `path` below `root`; the error is `NOENT` when its directory is not there.
    pub(crate) fn find(root: &OwnedFd, path: &Path) -> rustix::io::Result<Self> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        Ok(Self { directory: beneath::directory(root, path.parent().unwrap_or(Path::new("")))?, name })
    }

    /// Another name in the same directory.
    pub(crate) fn beside(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        Ok(Self { directory: self.directory.try_clone()?, name: name.as_ref().to_owned() })
    }

    /// What lies there.
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

    /// Whether exactly `entry` lies there.
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

    /// Whether the same file or link, with the same permissions, lies at both.
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

    /// Writes `entry` here, where nothing may be; it is owned like what it replaces or lies in.
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
                content_store::copy(&mut kept.open(sha256)?, &mut file, u64::MAX)?;
                if let Some((user, group)) = owner_like(like)? {
                    fchown(&file, Some(user), Some(group))?;
                }
                fchmod(&file, Mode::from_raw_mode(*mode & 0o777))?;
                Ok(Some(file))
            }
            _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
    }

    /// A copy of what lies at `other`, made where nothing may be, down to its times.
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

    /// Trades the two names: at no moment is either of them missing.
    pub(crate) fn exchange(&self, other: &Self) -> rustix::io::Result<()> {
        renameat_with(&self.directory, &self.name, &other.directory, &other.name, RenameFlags::EXCHANGE)
    }

    /// Moves to where nothing may be.
    pub(crate) fn move_to(&self, other: &Self) -> rustix::io::Result<()> {
        match renameat_with(&self.directory, &self.name, &other.directory, &other.name, RenameFlags::NOREPLACE) {
            // Some network file systems know no flags: look first, then move.
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

    /// Removes a file or link; that it is gone already is fine.
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

/// The owner of what lies at `like`, or of its directory. Only root can give files away, and only root needs
/// to: it applies what belongs to somebody else.
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
