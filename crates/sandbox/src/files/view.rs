//! Blocking file operations on a workspace, checked against its policy.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::WORKSPACE;
use policy::{Action, Decision, EffectivePolicy};
use rustix::fs::{AtFlags, FileType, Mode, fchmod, fstat, mkdirat, renameat_with, statat, unlinkat};
use rustix::io::Errno;

use super::error::AtPath;
use super::path::{LastLink, resolve};
use super::pending_file::PendingFile;
use super::{DirectoryListing, FileEntry, FileKind, FileStat, FilesError, OnExisting, RemovalDepth, move_directory};
use crate::beneath;
use crate::tree::{VisitNext, visit};

/// The permissions of new files and directories.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// An open workspace and its policy.
#[derive(Clone)]
pub(super) struct WorkspaceView {
    pub(super) root: Arc<OwnedFd>,
    /// The path of the workspace inside; `/workspace` means it too.
    pub(super) at: Arc<Path>,
    pub(super) policy: Arc<EffectivePolicy>,
}

fn check(decision: Decision, doing: &'static str, path: &Path) -> Result<(), FilesError> {
    if decision.is_allowed() {
        return Ok(());
    }
    Err(FilesError::Denied { doing, path: path.to_owned(), rule: Box::new(decision.rule) })
}

impl WorkspaceView {
    /// Fails when the policy does not allow to read `path`.
    pub(super) fn check_read(&self, path: &Path) -> Result<(), FilesError> {
        check(self.policy.decide(&Action::Read(Path::new(WORKSPACE).join(path))), "read", path)
    }

    /// Fails when the policy does not allow to change `path`.
    pub(super) fn check_change(&self, path: &Path) -> Result<(), FilesError> {
        let path_inside = Path::new(WORKSPACE).join(path);
        check(self.policy.decide(&Action::Write(path_inside.clone())), "change", path)?;
        // A secret by its name is not written either: without a sandbox it would be the host's file.
        check(self.policy.decide(&Action::Read(path_inside)), "change", path)
    }

    /// Returns `path` below the workspace without links. Its last components need not exist.
    pub(super) fn resolve(&self, path: &Path, last: LastLink) -> Result<PathBuf, FilesError> {
        resolve(&self.root, &self.at, path, last)
    }

    pub(super) fn stat(&self, path: &Path) -> Result<FileStat, FilesError> {
        let path = self.resolve(path, LastLink::NotFollowed)?;
        self.stat_resolved(&path)
    }

    fn stat_resolved(&self, path: &Path) -> Result<FileStat, FilesError> {
        let found = beneath::path_handle(&*self.root, path).at_path(path)?;
        let mut stat = FileStat::new(path.to_owned(), &fstat(&found).at_path(path)?);
        if stat.kind == FileKind::Link {
            stat.target = beneath::link(&self.root, path).at_path(path)?;
        }
        Ok(stat)
    }

    pub(super) fn list(&self, path: &Path, limit: usize) -> Result<DirectoryListing, FilesError> {
        let path = self.resolve(path, LastLink::Followed)?;
        let directory = beneath::directory(&*self.root, &path).at_path(&path)?;
        let mut listing = DirectoryListing::default();
        for name in beneath::names(&directory).at_path(&path)? {
            let name = OsStr::from_bytes(name.at_path(&path)?.to_bytes()).to_owned();
            if listing.entries.len() == limit {
                listing.truncated = true;
                break;
            }
            match statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    listing.entries.push(FileEntry { stat: FileStat::new(path.join(&name), &stat), name });
                }
                // The entry was removed since it was listed.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(FilesError::of(&path.join(&name), error)),
            }
        }
        listing.entries.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(listing)
    }

    /// Opens the regular file `path`.
    pub(super) fn open(&self, path: &Path) -> Result<(std::fs::File, FileStat), FilesError> {
        let path = self.resolve(path, LastLink::Followed)?;
        self.check_read(&path)?;
        let kind = self.stat_resolved(&path)?.kind;
        let wrong_kind = || FilesError::WrongKind { path: path.clone(), wanted: "a regular file" };
        // Checked before the open, because opening a device may have an effect.
        if kind != FileKind::File {
            return Err(wrong_kind());
        }
        let file = beneath::regular(&*self.root, &path).at_path(&path)?.ok_or_else(wrong_kind)?;
        let stat = FileStat::new(path.clone(), &fstat(&file).at_path(&path)?);
        Ok((file, stat))
    }

    /// Makes an empty pending file for `path`, with the permissions of the file that it replaces.
    pub(super) fn begin_replace(&self, path: &Path) -> Result<(PendingFile, std::fs::File, PathBuf), FilesError> {
        let path = self.resolve(path, LastLink::Followed)?;
        self.check_change(&path)?;
        let mode = match self.stat_resolved(&path) {
            Ok(stat) if stat.kind == FileKind::File => stat.mode,
            Ok(_) => return Err(FilesError::WrongKind { path, wanted: "a regular file" }),
            Err(FilesError::NotFound(_)) => FILE_MODE,
            Err(error) => return Err(error),
        };
        let (pending, file) = PendingFile::file(self.make_parent(&path)?, &path, mode)?;
        Ok((pending, file, path))
    }

    /// Makes the directory `path` and its parents.
    pub(super) fn make_directory(&self, path: &Path) -> Result<(), FilesError> {
        let path = self.resolve(path, LastLink::Followed)?;
        self.make_resolved(&path).map(drop)
    }

    fn make_resolved(&self, path: &Path) -> Result<OwnedFd, FilesError> {
        match beneath::directory(&*self.root, path) {
            Err(Errno::NOENT) => {}
            other => return other.at_path(path),
        }
        self.check_change(path)?;
        let parent = self.make_parent(path)?;
        match mkdirat(&parent, name(path)?, Mode::from_raw_mode(DIRECTORY_MODE)) {
            Ok(()) => {
                let made = beneath::directory(&*self.root, path).at_path(path)?;
                // mkdirat applies the process's umask; fchmod does not.
                fchmod(&made, Mode::from_raw_mode(DIRECTORY_MODE)).at_path(path)?;
                Ok(made)
            }
            // Another process made it meanwhile.
            Err(Errno::EXIST) => beneath::directory(&*self.root, path).at_path(path),
            Err(error) => Err(FilesError::of(path, error)),
        }
    }

    /// Opens the parent directory of `path`, making it if it does not exist.
    pub(super) fn make_parent(&self, path: &Path) -> Result<OwnedFd, FilesError> {
        self.make_resolved(path.parent().unwrap_or(Path::new("")))
    }

    /// Opens the parent directory of `path`.
    pub(super) fn parent(&self, path: &Path) -> Result<OwnedFd, FilesError> {
        let parent = path.parent().unwrap_or(Path::new(""));
        beneath::directory(&*self.root, parent).at_path(parent)
    }

    pub(super) fn rename(&self, from: &Path, to: &Path, existing: OnExisting) -> Result<(), FilesError> {
        let (from, to) = (self.resolve(from, LastLink::NotFollowed)?, self.resolve(to, LastLink::NotFollowed)?);
        self.stat_resolved(&from)?;
        if to.starts_with(&from) && to != from {
            return Err(FilesError::WrongKind { path: to, wanted: "outside of the directory that is moved" });
        }
        self.check_all(&from, &mut |path| {
            let renamed = to.join(path.strip_prefix(&from).unwrap_or(Path::new("")));
            // A denied file could be read under its new name.
            self.check_read(path).and_then(|()| self.check_change(path)).and_then(|()| self.check_change(&renamed))
        })?;
        let (old_name, new_name) = (name(&from)?, name(&to)?);
        let (old, new) = (self.parent(&from)?, self.make_parent(&to)?);
        match renameat_with(&old, old_name, &new, new_name, existing.flags()) {
            // An overlay cannot rename a directory of its lower layer. It is copied, as `mv` does.
            Err(Errno::XDEV) => move_directory::move_directory(self, &from, &to, existing),
            other => other.at_path(&to),
        }
    }

    pub(super) fn remove(&self, path: &Path, depth: RemovalDepth) -> Result<(), FilesError> {
        let path = self.resolve(path, LastLink::NotFollowed)?;
        let kind = self.stat_resolved(&path)?.kind;
        name(&path)?;
        if kind != FileKind::Directory || depth == RemovalDepth::Single {
            self.check_change(&path)?;
            return self.unlink(&path, kind);
        }
        self.remove_tree(&path)
    }

    /// Removes a directory and everything in it; nothing when the policy denies to change one of the entries.
    pub(super) fn remove_tree(&self, path: &Path) -> Result<(), FilesError> {
        let mut found = Vec::new();
        self.check_change(path)?;
        let mut each = |path: &Path, kind| {
            self.check_change(path)?;
            found.push((path.to_owned(), FileKind::of(kind)));
            Ok(())
        };
        self.below(path, &mut each)?;
        // Directories were found before their entries, so the order is reversed.
        for (path, kind) in found.iter().rev() {
            match self.unlink(path, *kind) {
                Ok(()) | Err(FilesError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.unlink(path, FileKind::Directory)
    }

    fn unlink(&self, path: &Path, kind: FileKind) -> Result<(), FilesError> {
        let flags = if kind == FileKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(self.parent(path)?, name(path)?, flags).at_path(path)
    }

    /// Calls `check` for `path` and everything below it.
    fn check_all(&self, path: &Path, check: &mut dyn FnMut(&Path) -> Result<(), FilesError>) -> Result<(), FilesError> {
        check(path)?;
        self.below(path, &mut |path, _| check(path))
    }

    /// Calls `each` for everything below `path`, a directory before its entries. Does nothing when `path` is not a
    /// directory.
    pub(super) fn below(
        &self,
        path: &Path,
        each: &mut dyn FnMut(&Path, FileType) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        let mut refused = None;
        let walked = visit(&self.root, path, &mut |path, kind| match each(path, kind) {
            Ok(()) => Ok(VisitNext::Enter),
            Err(error) => {
                refused = Some(error);
                Err(std::io::ErrorKind::Interrupted.into())
            }
        });
        match (refused, walked) {
            (Some(refused), _) => Err(refused),
            (None, walked) => walked.at_path(path),
        }
    }
}

/// Returns the last component of `path`. Fails for the workspace itself.
pub(super) fn name(path: &Path) -> Result<&OsStr, FilesError> {
    path.file_name().ok_or_else(|| FilesError::WrongKind { path: WORKSPACE.into(), wanted: "in the workspace" })
}
