//! A new file or link under a temporary name, which is renamed when it is complete.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, linkat, openat, renameat, symlinkat, unlinkat};

use super::FilesError;
use super::error::AtPath;

/// A temporary entry in the directory of `path`. It is removed when dropped before `finish`.
pub(super) struct PendingFile {
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl PendingFile {
    fn new(directory: OwnedFd, path: &Path) -> Self {
        let name = format!(".viv-{}", uuid::Uuid::new_v4().simple()).into();
        Self { directory, name, path: path.to_owned() }
    }

    /// Makes an empty regular file.
    pub(super) fn file(directory: OwnedFd, path: &Path, mode: u32) -> Result<(Self, File), FilesError> {
        let pending = Self::new(directory, path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&pending.directory, &pending.name, flags, Mode::from_raw_mode(0o600)).at_path(path)?;
        // openat applies the process's umask; fchmod does not.
        fchmod(&file, Mode::from_raw_mode(mode & 0o777)).at_path(path)?;
        Ok((pending, file.into()))
    }

    /// Makes a symbolic link.
    pub(super) fn link(directory: OwnedFd, path: &Path, target: &Path) -> Result<Self, FilesError> {
        let pending = Self::new(directory, path);
        symlinkat(target, &pending.directory, &pending.name).at_path(path)?;
        Ok(pending)
    }

    /// Makes a hard link to the file `name` in `source`.
    pub(super) fn hard_link(
        directory: OwnedFd,
        path: &Path,
        source: impl AsFd,
        name: &std::ffi::OsStr,
    ) -> Result<Self, FilesError> {
        let pending = Self::new(directory, path);
        linkat(source, name, &pending.directory, &pending.name, AtFlags::empty()).at_path(path)?;
        Ok(pending)
    }

    /// Renames the entry to its final path, replacing an existing entry.
    pub(super) fn finish(self) -> Result<(), FilesError> {
        let name = self.path.file_name().ok_or_else(|| FilesError::Exists(self.path.clone()))?;
        renameat(&self.directory, &self.name, &self.directory, name).at_path(&self.path)
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        // After a rename nothing is left, except when both names were the same file: then the kernel does nothing.
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}
