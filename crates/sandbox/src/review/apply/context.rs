//! The context of an apply: the directories that its steps work with.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::io::Errno;

use super::directory_entry::DirectoryEntry;
use super::refusal::HostDifference;
use crate::beneath;
use crate::review::apply_journal::ApplyJournal;
use crate::review::content_store::ContentStore;

/// With more directories than this, one syncfs is faster than an fsync for each.
const FEW_DIRECTORIES: usize = 64;

/// The directories between which an apply moves files.
pub(crate) struct ApplyContext<'a> {
    pub(crate) workspace: OwnedFd,
    pub(crate) contents: ContentStore,
    originals: OwnedFd,
    id: &'a str,
    /// Called before each change to a disk, and before each check of its result. Tests interrupt the apply here.
    before_each: &'a dyn Fn(),
}

/// Why a step stopped.
#[derive(Debug)]
pub(crate) enum StepError {
    /// Another process changed the path meanwhile. That change was kept.
    Conflict(HostDifference),
    Io(io::Error),
}

impl From<io::Error> for StepError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for StepError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl<'a> ApplyContext<'a> {
    pub(crate) fn open(saved: &Path, journal: &'a ApplyJournal, before_each: &'a dyn Fn()) -> io::Result<Self> {
        let originals = journal.originals(saved);
        DirBuilder::new().recursive(true).mode(0o700).create(&originals)?;
        Ok(Self {
            workspace: beneath::root(&journal.workspace)?,
            contents: ContentStore::of(saved),
            originals: beneath::root(&originals.canonicalize()?)?,
            id: &journal.id,
            before_each,
        })
    }

    /// Announces the next change or check.
    pub(crate) fn next(&self) {
        (self.before_each)();
    }

    /// Returns the entry in which the original of a step is kept.
    pub(crate) fn kept(&self, number: usize) -> io::Result<DirectoryEntry> {
        Ok(DirectoryEntry { directory: self.originals.try_clone()?, name: number.to_string().into() })
    }

    /// Returns the temporary name of a step beside its target.
    pub(crate) fn temporary(&self, number: usize) -> String {
        format!(".viv-apply-{}-{number}", self.id)
    }

    /// Writes all changes to disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        rustix::fs::syncfs(&self.workspace)?;
        Ok(rustix::fs::syncfs(&self.originals)?)
    }

    /// Writes renames in the directories of `paths` to disk. Faster than `sync` for few directories.
    pub(crate) fn sync_names(&self, paths: &[&Path]) -> io::Result<()> {
        let mut parents: Vec<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        parents.sort_unstable();
        parents.dedup();
        if parents.len() > FEW_DIRECTORIES {
            return self.sync();
        }
        for parent in parents {
            match beneath::directory(&self.workspace, parent) {
                Ok(directory) => rustix::fs::fsync(&directory)?,
                Err(error) if beneath::is_absence(error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(rustix::fs::fsync(&self.originals)?)
    }
}
