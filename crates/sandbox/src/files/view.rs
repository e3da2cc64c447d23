//! The workspace as a command inside sees it: what can be done to it in one go, by a thread that may block.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::WORKSPACE;
use policy::{Action, EffectivePolicy};
use rustix::fs::{AtFlags, FileType, Mode, fchmod, fstat, mkdirat, renameat_with, statat, unlinkat};
use rustix::io::Errno;

use super::draft::Draft;
use super::error::About;
use super::path::{Last, real};
use super::{DirectoryListing, FileEntry, FileKind, FileStat, FilesError, OnExisting, RemovalDepth, carry};
use crate::beneath;
use crate::tree::{Next, visit};

/// What a file made here can be done with by the user inside, and by everybody.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// An open workspace and the policy it is under.
#[derive(Clone)]
pub(super) struct View {
    pub(super) root: Arc<OwnedFd>,
    pub(super) policy: Arc<EffectivePolicy>,
}

impl View {
    pub(super) fn may_read(&self, path: &Path) -> Result<(), FilesError> {
        self.judge(Action::Read(Path::new(WORKSPACE).join(path)), "read", path)
    }

    pub(super) fn may_change(&self, path: &Path) -> Result<(), FilesError> {
        self.judge(Action::Write(Path::new(WORKSPACE).join(path)), "change", path)
    }

    fn judge(&self, action: Action, doing: &'static str, path: &Path) -> Result<(), FilesError> {
        let decision = self.policy.decide(&action);
        if decision.is_allowed() {
            return Ok(());
        }
        Err(FilesError::Denied { doing, path: path.to_owned(), rule: Box::new(decision.rule) })
    }

    pub(super) fn stat(&self, path: &Path) -> Result<FileStat, FilesError> {
        let path = real(&self.root, path, Last::AsItIs)?;
        self.stat_real(&path)
    }

    fn stat_real(&self, path: &Path) -> Result<FileStat, FilesError> {
        let found = beneath::look(&*self.root, path).about(path)?;
        let mut stat = FileStat::new(path.to_owned(), &fstat(&found).about(path)?);
        if stat.kind == FileKind::Link {
            stat.target = beneath::link(&self.root, path).about(path)?;
        }
        Ok(stat)
    }

    pub(super) fn list(&self, path: &Path, limit: usize) -> Result<DirectoryListing, FilesError> {
        let path = real(&self.root, path, Last::Followed)?;
        let directory = beneath::directory(&*self.root, &path).about(&path)?;
        let mut listing = DirectoryListing::default();
        for name in beneath::names(&directory).about(&path)? {
            let name = OsStr::from_bytes(name.about(&path)?.to_bytes()).to_owned();
            if listing.entries.len() == limit {
                listing.truncated = true;
                break;
            }
            match statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    listing.entries.push(FileEntry { stat: FileStat::new(path.join(&name), &stat), name });
                }
                // Gone since it was named.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(FilesError::of(&path.join(&name), error)),
            }
        }
        listing.entries.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(listing)
    }

    /// The regular file that `path` leads to.
    pub(super) fn open(&self, path: &Path) -> Result<(std::fs::File, FileStat), FilesError> {
        let path = real(&self.root, path, Last::Followed)?;
        self.may_read(&path)?;
        let kind = self.stat_real(&path)?.kind;
        let wrong = || FilesError::WrongKind { path: path.clone(), wanted: "a regular file" };
        // Looked at before it is opened: a device may act on being opened.
        if kind != FileKind::File {
            return Err(wrong());
        }
        let file = beneath::regular(&*self.root, &path).about(&path)?.ok_or_else(wrong)?;
        let stat = FileStat::new(path.clone(), &fstat(&file).about(&path)?);
        Ok((file, stat))
    }

    /// An empty file that will be at `path`, with the permissions of what it replaces.
    pub(super) fn draft(&self, path: &Path) -> Result<(Draft, std::fs::File, PathBuf), FilesError> {
        let path = real(&self.root, path, Last::Followed)?;
        self.may_change(&path)?;
        let mode = match self.stat_real(&path) {
            Ok(stat) if stat.kind == FileKind::File => stat.mode,
            Ok(_) => return Err(FilesError::WrongKind { path, wanted: "a regular file" }),
            Err(FilesError::NotFound(_)) => FILE_MODE,
            Err(error) => return Err(error),
        };
        let (draft, file) = Draft::file(self.parent(&path)?, &path, mode)?;
        Ok((draft, file, path))
    }

    /// Makes the directory `path`, which holds no link, and those it is in.
    pub(super) fn make_directory(&self, path: &Path) -> Result<(), FilesError> {
        let path = real(&self.root, path, Last::Followed)?;
        self.make_real(&path).map(drop)
    }

    fn make_real(&self, path: &Path) -> Result<OwnedFd, FilesError> {
        match beneath::directory(&*self.root, path) {
            Err(Errno::NOENT) => {}
            other => return other.about(path),
        }
        self.may_change(path)?;
        let parent = self.parent(path)?;
        match mkdirat(&parent, name(path)?, Mode::from_raw_mode(DIRECTORY_MODE)) {
            Ok(()) => {
                let made = beneath::directory(&*self.root, path).about(path)?;
                // What the process's mask took away.
                fchmod(&made, Mode::from_raw_mode(DIRECTORY_MODE)).about(path)?;
                Ok(made)
            }
            // Made by somebody else meanwhile.
            Err(Errno::EXIST) => beneath::directory(&*self.root, path).about(path),
            Err(error) => Err(FilesError::of(path, error)),
        }
    }

    /// The directory that `path` is in, made if it is not there.
    pub(super) fn parent(&self, path: &Path) -> Result<OwnedFd, FilesError> {
        self.make_real(path.parent().unwrap_or(Path::new("")))
    }

    /// The directory that `path` is in.
    pub(super) fn around(&self, path: &Path) -> Result<OwnedFd, FilesError> {
        let parent = path.parent().unwrap_or(Path::new(""));
        beneath::directory(&*self.root, parent).about(parent)
    }

    pub(super) fn rename(&self, from: &Path, to: &Path, existing: OnExisting) -> Result<(), FilesError> {
        let (from, to) = (real(&self.root, from, Last::AsItIs)?, real(&self.root, to, Last::AsItIs)?);
        self.stat_real(&from)?;
        if to.starts_with(&from) && to != from {
            return Err(FilesError::WrongKind { path: to, wanted: "outside of what is moved" });
        }
        self.every(&from, &mut |path| {
            let renamed = to.join(path.strip_prefix(&from).unwrap_or(Path::new("")));
            // Under another name it could be read.
            self.may_read(path).and_then(|()| self.may_change(path)).and_then(|()| self.may_change(&renamed))
        })?;
        let (old_name, new_name) = (name(&from)?, name(&to)?);
        let (old, new) = (self.around(&from)?, self.parent(&to)?);
        match renameat_with(&old, old_name, &new, new_name, existing.flags()) {
            // An overlay renames no directory of its lower layer: it is copied, as `mv` does.
            Err(Errno::XDEV) => carry::carry(self, &from, &to, existing),
            other => other.about(&to),
        }
    }

    pub(super) fn remove(&self, path: &Path, depth: RemovalDepth) -> Result<(), FilesError> {
        let path = real(&self.root, path, Last::AsItIs)?;
        let kind = self.stat_real(&path)?.kind;
        name(&path)?;
        if kind != FileKind::Directory || depth == RemovalDepth::Single {
            self.may_change(&path)?;
            return self.unlink(&path, kind);
        }
        self.remove_tree(&path)
    }

    /// Removes a directory and everything in it, or nothing where the policy keeps a part of it.
    pub(super) fn remove_tree(&self, path: &Path) -> Result<(), FilesError> {
        let mut found = Vec::new();
        self.may_change(path)?;
        let mut each = |path: &Path, kind| {
            self.may_change(path)?;
            found.push((path.to_owned(), FileKind::of(kind)));
            Ok(())
        };
        self.below(path, &mut each)?;
        // A directory was found before what is in it.
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
        unlinkat(self.around(path)?, name(path)?, flags).about(path)
    }

    /// Asks `may` about `path` and everything below it.
    fn every(&self, path: &Path, may: &mut dyn FnMut(&Path) -> Result<(), FilesError>) -> Result<(), FilesError> {
        may(path)?;
        self.below(path, &mut |path, _| may(path))
    }

    /// Everything below `path`, a directory before what is in it. Nothing where `path` is none.
    pub(super) fn below(
        &self,
        path: &Path,
        each: &mut dyn FnMut(&Path, FileType) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        let mut refused = None;
        let walked = visit(&self.root, path, &mut |path, kind| match each(path, kind) {
            Ok(()) => Ok(Next::Enter),
            Err(error) => {
                refused = Some(error);
                Err(std::io::ErrorKind::Interrupted.into())
            }
        });
        match (refused, walked) {
            (Some(refused), _) => Err(refused),
            (None, walked) => walked.about(path),
        }
    }
}

/// The last name of `path`; the workspace itself has none here.
pub(super) fn name(path: &Path) -> Result<&OsStr, FilesError> {
    path.file_name().ok_or_else(|| FilesError::WrongKind { path: WORKSPACE.into(), wanted: "in the workspace" })
}
