//! Something new under a name nobody asks for, until it is whole and takes the name it is for.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, linkat, openat, renameat, symlinkat, unlinkat};

use super::FilesError;
use super::error::About;

/// A name in the directory of `path` that is removed again unless it was finished.
pub(super) struct Draft {
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl Draft {
    fn new(directory: OwnedFd, path: &Path) -> Self {
        let name = format!(".viv-{}", uuid::Uuid::new_v4().simple()).into();
        Self { directory, name, path: path.to_owned() }
    }

    /// An empty regular file.
    pub(super) fn file(directory: OwnedFd, path: &Path, mode: u32) -> Result<(Self, File), FilesError> {
        let draft = Self::new(directory, path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&draft.directory, &draft.name, flags, Mode::from_raw_mode(0o600)).about(path)?;
        // What the process's mask would take away.
        fchmod(&file, Mode::from_raw_mode(mode & 0o777)).about(path)?;
        Ok((draft, file.into()))
    }

    /// A symbolic link.
    pub(super) fn link(directory: OwnedFd, path: &Path, target: &Path) -> Result<Self, FilesError> {
        let draft = Self::new(directory, path);
        symlinkat(target, &draft.directory, &draft.name).about(path)?;
        Ok(draft)
    }

    /// A second name of the file `name` in `source`.
    pub(super) fn second_name(
        directory: OwnedFd,
        path: &Path,
        source: impl AsFd,
        name: &std::ffi::OsStr,
    ) -> Result<Self, FilesError> {
        let draft = Self::new(directory, path);
        linkat(source, name, &draft.directory, &draft.name, AtFlags::empty()).about(path)?;
        Ok(draft)
    }

    /// Takes the name it is for; what had it is gone.
    pub(super) fn finish(self) -> Result<(), FilesError> {
        let name = self.path.file_name().ok_or_else(|| FilesError::Exists(self.path.clone()))?;
        renameat(&self.directory, &self.name, &self.directory, name).about(&self.path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename there is nothing, unless both names were the same file: then the kernel did nothing.
        let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}
