//! Saved changes of a sandbox, which outlive it.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::apply_journal::ApplyJournal;
use super::content_store::ContentStore;
use super::manifest::{Manifest, ManifestEntry};
use super::save::{Reread, save};
use super::save_lock::SaveLock;
use super::{SavedChange, SavedEntry, diff};
use crate::overlay::{ChangeKind, OverlayLayers};

/// The saved changes of one sandbox, in their own directory.
#[derive(Debug, Clone)]
pub struct SavedChanges {
    pub(crate) directory: PathBuf,
    pub(crate) manifest: Manifest,
}

/// The number of changed lines of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LineCount {
    /// The number of added lines.
    pub added: u64,
    /// The number of removed lines.
    pub removed: u64,
    /// Whether the file is binary or too large, so that lines were not counted.
    pub binary: bool,
}

/// One path of a summary.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChangeStat {
    /// Relative to the workspace.
    #[serde(with = "super::json_path")]
    pub path: PathBuf,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The number of changed lines.
    #[serde(flatten)]
    pub lines: LineCount,
    /// Whether the host's file changed as well.
    pub conflict: bool,
}

impl SavedChanges {
    /// Saves the changes of the sandbox to `into`, which is made if needed. Files that an earlier save has are read again
    /// only if they changed.
    ///
    /// The manifest is replaced as a whole, after all contents are on disk. The sandbox may run meanwhile; a write through a
    /// memory mapping may then be missed.
    pub fn save(layers: &OverlayLayers, into: &Path) -> io::Result<Self> {
        save(layers, into, Reread::Changed)
    }

    /// Saves the changes for the last time, when no process runs, and reads every file again. A write through a memory
    /// mapping does not change a file's times, so only this finds all of them.
    pub fn save_final(layers: &OverlayLayers, into: &Path) -> io::Result<Self> {
        save(layers, into, Reread::All)
    }

    /// Reads saved changes; fails with `NotFound` when nothing was saved.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Ok(Self::new(directory, Manifest::read(directory)?))
    }

    pub(crate) fn new(directory: &Path, manifest: Manifest) -> Self {
        Self { directory: directory.to_owned(), manifest }
    }

    /// Returns the workspace directory on the host.
    pub fn workspace(&self) -> &Path {
        &self.manifest.workspace
    }

    /// Returns the directory of the saved changes.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns all changes, deletions first, then by path.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = &SavedChange> {
        self.manifest.changes.iter().map(|record: &ManifestEntry| &record.change)
    }

    /// Returns the change of one path; `None` when it did not change.
    pub fn change(&self, path: &Path) -> Option<&SavedChange> {
        self.changes().find(|change| change.path == path)
    }

    /// Returns the content of an added or changed file; fails with `NotFound` for any other path.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let Some(SavedEntry::Regular { sha256, .. }) = self.change(path).and_then(|change| change.entry.as_ref())
        else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut content = Vec::new();
        ContentStore::of(&self.directory).open(sha256)?.read_to_end(&mut content)?;
        Ok(content)
    }

    /// Returns whether an apply was interrupted, and must be finished or undone.
    pub fn is_unfinished(&self) -> io::Result<bool> {
        Ok(ApplyJournal::read(&self.directory)?.is_some_and(|journal| journal.is_unfinished()))
    }

    /// Returns the patch of a path against the host's current file; `None` when the path did not change.
    pub fn diff(&self, path: &Path) -> io::Result<Option<String>> {
        self.change(path).map(|change| diff::patch(self, change)).transpose()
    }

    /// Returns the number of changed lines of each path, in the order of `changes`.
    pub fn stat(&self) -> io::Result<Vec<ChangeStat>> {
        self.changes()
            .map(|change| {
                let lines = diff::count(self, change)?;
                Ok(ChangeStat { path: change.path.clone(), kind: change.kind, lines, conflict: change.conflict })
            })
            .collect()
    }
}

/// Deletes saved changes and the originals of an apply, so that it can no longer be undone. Fails while an apply is
/// unfinished, because its originals may be the only copy.
pub fn discard(directory: &Path) -> io::Result<()> {
    let _lock = match SaveLock::take(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if ApplyJournal::read(directory)?.is_some_and(|journal| journal.is_unfinished()) {
        let why = "an apply of these changes was interrupted: finish or undo it first";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    std::fs::remove_dir_all(directory)
}
