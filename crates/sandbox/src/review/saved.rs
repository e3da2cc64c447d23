//! Changes that outlive their sandbox.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::apply_journal::ApplyJournal;
use super::content_store::ContentStore;
use super::manifest::{Manifest, ManifestEntry};
use super::save::{Reread, save};
use super::save_lock::SaveLock;
use super::{SavedChange, SavedEntry, diff};
use crate::overlay::{ChangeKind, OverlayLayers};

/// The changes of one sandbox, kept in a directory of their own.
#[derive(Debug, Clone)]
pub struct SavedChanges {
    pub(crate) directory: PathBuf,
    pub(crate) manifest: Manifest,
}

/// How much of a file changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LineCount {
    /// Lines that are new.
    pub added: u64,
    /// Lines that are gone.
    pub removed: u64,
    /// It is no text, or too large to be compared: lines were not counted.
    pub binary: bool,
}

/// One path of a summary.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChangeStat {
    /// Relative to the workspace.
    #[serde(with = "super::json_path")]
    pub path: PathBuf,
    /// What happened to it.
    pub kind: ChangeKind,
    /// How much of it.
    #[serde(flatten)]
    pub lines: LineCount,
    /// The host's own file changed as well.
    pub conflict: bool,
}

impl SavedChanges {
    /// Keeps what the sandbox changed in `into`, which is made if it is not there. What an earlier save
    /// kept there is read again only where it changed.
    ///
    /// The list is replaced as a whole, after all content is on disk. The sandbox may run meanwhile; a file
    /// that it writes through a memory mapping may then be seen as it was before.
    pub fn save(layers: &OverlayLayers, into: &Path) -> io::Result<Self> {
        save(layers, into, Reread::Changed)
    }

    /// The same, for the last time: nothing runs any more, and every file is read again. A write through a
    /// memory mapping leaves no trace in a file's times, so only this sees all of them.
    pub fn save_final(layers: &OverlayLayers, into: &Path) -> io::Result<Self> {
        save(layers, into, Reread::All)
    }

    /// Reads what was saved; `NotFound` when nothing was.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Ok(Self::new(directory, Manifest::read(directory)?))
    }

    pub(crate) fn new(directory: &Path, manifest: Manifest) -> Self {
        Self { directory: directory.to_owned(), manifest }
    }

    /// The directory on the host that was changed.
    pub fn workspace(&self) -> &Path {
        &self.manifest.workspace
    }

    /// Where all this is kept.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// All changes, deletions first, then by path.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = &SavedChange> {
        self.manifest.changes.iter().map(|record: &ManifestEntry| &record.change)
    }

    /// The change of one path.
    pub fn change(&self, path: &Path) -> Option<&SavedChange> {
        self.changes().find(|change| change.path == path)
    }

    /// The content of a file that was added or changed; `NotFound` for every other path.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let Some(SavedEntry::Regular { sha256, .. }) = self.change(path).and_then(|change| change.entry.as_ref())
        else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut content = Vec::new();
        ContentStore::of(&self.directory).open(sha256)?.read_to_end(&mut content)?;
        Ok(content)
    }

    /// Whether an apply stopped halfway, and is to be finished or undone.
    pub fn is_unfinished(&self) -> io::Result<bool> {
        Ok(ApplyJournal::read(&self.directory)?.is_some_and(|journal| journal.is_unfinished()))
    }

    /// What changed in a path against the host as it is now, as a patch; `None` when the path did not change.
    pub fn diff(&self, path: &Path) -> io::Result<Option<String>> {
        self.change(path).map(|change| diff::patch(self, change)).transpose()
    }

    /// How many lines of each path changed, in the order of `changes`.
    pub fn stat(&self) -> io::Result<Vec<ChangeStat>> {
        self.changes()
            .map(|change| {
                let lines = diff::count(self, change)?;
                Ok(ChangeStat { path: change.path.clone(), kind: change.kind, lines, conflict: change.conflict })
            })
            .collect()
    }
}

/// Forgets saved changes, and the originals of an apply with them: nothing can be undone afterwards.
/// Refused while an apply is unfinished, whose originals may be the only copy.
pub fn discard(directory: &Path) -> io::Result<()> {
    let _lock = match SaveLock::take(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if ApplyJournal::read(directory)?.is_some_and(|journal| journal.is_unfinished()) {
        let why = "an apply of these changes stopped halfway: finish or undo it first";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    std::fs::remove_dir_all(directory)
}
