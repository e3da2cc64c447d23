//! Saved changes of a sandbox, which outlive it.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base::Digest;

use super::apply_journal::ApplyJournal;
use super::change_set::{SetNote, SetSummary};
use super::classes::{ClassName, PathClass, classify};
use super::commits::remove_imported_commits;
use super::content_store::ContentStore;
use super::manifest::{Manifest, ManifestEntry};
use super::save::{RereadScope, save};
use super::save_lock::SaveLock;
use super::set_store::{CurrentSet, SetStore};
use super::{ApplyError, SavedChange, SavedEntry, diff};
use crate::overlay::{ChangeKind, OverlayLayers};

/// The saved changes of one sandbox, in their own directory: the current set, or an earlier one.
#[derive(Debug, Clone)]
pub struct SavedChanges {
    pub(crate) directory: PathBuf,
    pub(crate) manifest: Manifest,
    digest: Digest,
    choice: SetChoice,
}

/// The reason why a set is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetChoice {
    /// The set was the current one. It is not applied after another set became current.
    Current,
    /// The caller named the set by its number.
    ByNumber,
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
    /// The class by which the path is applied.
    #[serde(default)]
    pub class: ClassName,
    /// The reason for the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether the policy hides the file, so that its lines were not counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

impl SavedChanges {
    /// Saves the changes of the sandbox to `into`, which is made if needed. Files that an earlier save has are read again
    /// only if they changed.
    ///
    /// The manifest is replaced as a whole, after all contents are on disk. The sandbox may run meanwhile; a write through a
    /// memory mapping may then be missed.
    ///
    /// When the changes differ from the current set, they become a new set. Earlier sets are not changed.
    pub fn save(layers: &OverlayLayers, into: &Path) -> io::Result<Self> {
        Self::save_with_note(layers, into, SetNote::default())
    }

    /// Saves the changes like [`Self::save`], and adds `note` to the new set.
    pub fn save_with_note(layers: &OverlayLayers, into: &Path, note: SetNote) -> io::Result<Self> {
        save(layers, into, RereadScope::Changed, &note)
    }

    /// Saves the changes for the last time, when no process runs, and reads every file again. A write through a memory
    /// mapping does not change a file's times, so only this finds all of them.
    pub fn save_final(layers: &OverlayLayers, into: &Path) -> io::Result<Self> {
        Self::save_final_with_note(layers, into, SetNote::default())
    }

    /// Saves the changes like [`Self::save_final`], and adds `note` to the new set.
    pub fn save_final_with_note(layers: &OverlayLayers, into: &Path, note: SetNote) -> io::Result<Self> {
        save(layers, into, RereadScope::All, &note)
    }

    /// Reads saved changes; fails with `NotFound` when nothing was saved.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Ok(Self::new(directory, Manifest::read(directory)?))
    }

    pub(crate) fn new(directory: &Path, manifest: Manifest) -> Self {
        let digest = manifest.digest();
        Self { directory: directory.to_owned(), manifest, digest, choice: SetChoice::Current }
    }

    /// Reads the set `number`, which may be an earlier one; fails with `NotFound` when it is not kept.
    pub fn open_set(directory: &Path, number: u64) -> io::Result<Self> {
        let current = Self::open(directory)?;
        if number == 0 || number > current.set_number() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if number == current.set_number() {
            return Ok(Self { choice: SetChoice::ByNumber, ..current });
        }
        let record = SetStore::of(directory).read(number)?;
        let digest = record.summary.digest;
        let manifest = record.into_manifest();
        Ok(Self { directory: directory.to_owned(), manifest, digest, choice: SetChoice::ByNumber })
    }

    /// Returns the summaries of all kept sets, oldest first; fails with `NotFound` when nothing was saved.
    pub fn sets(directory: &Path) -> io::Result<Vec<SetSummary>> {
        let current = Self::open(directory)?;
        let mut sets = SetStore::of(directory).list(current.set_number())?;
        // In a directory of an earlier build, the only set has no file yet.
        if current.set_number() > 0 && sets.last().is_none_or(|last| last.number < current.set_number()) {
            sets.push(SetSummary::of(&current.manifest, current.digest));
        }
        Ok(sets)
    }

    /// Returns the number of the set; 0 when nothing was ever changed.
    pub fn set_number(&self) -> u64 {
        self.manifest.set
    }

    /// Returns the digest of the set, which covers everything that an apply of it uses.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the set without its list of changes.
    pub fn summary(&self) -> io::Result<SetSummary> {
        match SetStore::of(&self.directory).summary(self.manifest.set) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(SetSummary::of(&self.manifest, self.digest)),
            found => found,
        }
    }

    /// Returns the manifest on disk, while the lock is held. Fails when the set that is shown here is not kept, or not the
    /// current one although it was chosen as that.
    pub(crate) fn confirm(&mut self) -> Result<Manifest, ApplyError> {
        let manifest = Manifest::read(&self.directory)?;
        let sets = SetStore::of(&self.directory);
        sets.adopt(&manifest)?;
        let current = CurrentSet::of(&manifest) == CurrentSet { number: self.set_number(), digest: self.digest };
        if current {
            self.manifest.clone_from(&manifest);
            return Ok(manifest);
        }
        let kept = match sets.read(self.set_number()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ApplyError::Stale),
            kept => kept?,
        };
        let same = kept.summary.digest == self.digest;
        if self.choice == SetChoice::ByNumber && same { Ok(manifest) } else { Err(ApplyError::Stale) }
    }

    /// Shows the current set from now on.
    pub(crate) fn follow(&mut self, manifest: Manifest) {
        *self = Self::new(&self.directory, manifest);
    }

    /// Returns whether an earlier set is shown, and not the one in `current`.
    pub(crate) fn is_earlier(&self, current: &Manifest) -> bool {
        self.manifest.set != current.set
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

    /// Returns whether the policy of the sandbox hides the changed file. The host may have content there that the sandbox
    /// did not see, so no diff of it is shown.
    pub fn is_hidden(&self, change: &SavedChange) -> bool {
        let denials = &self.manifest.denials;
        denials.rule_denying_read(&change.path).is_some() || (change.base.is_some() && denials.hides(&change.path))
    }

    /// Returns whether an apply was interrupted, and must be finished or undone.
    pub fn is_unfinished(&self) -> io::Result<bool> {
        Ok(ApplyJournal::read(&self.directory)?.is_some_and(|journal| journal.is_unfinished()))
    }

    /// Returns the patch of a path against the host's current file; `None` when the path did not change.
    pub fn diff(&self, path: &Path) -> io::Result<Option<String>> {
        self.change(path).map(|change| diff::patch(self, change)).transpose()
    }

    /// Returns every changed path with its class, in the order of `changes`. Paths in the host's git directories are not part of
    /// the list: they are never applied as files.
    pub fn classes(&self) -> io::Result<Vec<(&SavedChange, PathClass)>> {
        classify(self)
    }

    /// Returns the number of changed lines and the class of each path, in the order of `changes`.
    pub fn stat(&self) -> io::Result<Vec<ChangeStat>> {
        let stat = |(change, class): (&SavedChange, PathClass)| {
            let (lines, hidden) = (diff::count(self, change)?, self.is_hidden(change));
            let SavedChange { path, kind, conflict, .. } = change;
            let (class, why) = (class.name(), class.why());
            Ok(ChangeStat { path: path.clone(), kind: *kind, lines, conflict: *conflict, class, why, hidden })
        };
        self.classes()?.into_iter().map(stat).collect()
    }
}

/// Deletes saved changes, the originals of an apply and the imported references of commits. The apply can no longer be
/// undone. Fails while an apply is unfinished, because its originals may be the only copy.
pub fn discard(directory: &Path) -> io::Result<()> {
    let _lock = match SaveLock::take(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if ApplyJournal::read(directory)?.is_some_and(|journal| journal.is_unfinished()) {
        let why = "an apply of these changes was interrupted: finish or undo it first";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    if let Err(error) = remove_imported_commits(directory) {
        tracing::warn!(error = %base::error_chain(&error), "cannot remove the references of the session's commits");
    }
    std::fs::remove_dir_all(directory)
}
