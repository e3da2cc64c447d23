//! The journal of an apply, written before its first step, so that an interrupted apply can be finished or undone.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::manifest::{Manifest, ManifestEntry, read_json, sync_directory, write_json};
use super::{SavedChange, json_path};

const NAME: &str = "apply.journal";

/// The journal of one apply. Its progress is derived from the files themselves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ApplyJournal {
    /// The id in the names of its temporary files.
    pub(crate) id: String,
    /// The directory on the host.
    #[serde(with = "json_path")]
    pub(crate) workspace: PathBuf,
    pub(crate) state: ApplyState,
    /// The umask of the applying user. Without it, as in earlier versions, changes get the permissions of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) umask: Option<u32>,
    pub(crate) changes: Vec<SavedChange>,
    /// For an apply of an earlier set, the changes of the current set at the same paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaced: Option<ReplacedChanges>,
}

/// Changes of the current set that an undo restores.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReplacedChanges {
    /// The time of the save that found them. After another save they are out of date.
    pub(crate) saved_nanos: i64,
    pub(crate) changes: Vec<ManifestEntry>,
}

impl ReplacedChanges {
    /// Returns the changes in `current` at the paths of `applied`.
    pub(crate) fn of(current: &Manifest, applied: &[SavedChange]) -> Self {
        let paths: HashSet<&Path> = applied.iter().map(|change| change.path.as_path()).collect();
        let changes = current.changes.iter().filter(|record| paths.contains(&*record.change.path)).cloned();
        Self { saved_nanos: current.saved_nanos, changes: changes.collect() }
    }
}

/// The state of an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ApplyState {
    /// Some changes may be on the host, and some not.
    Started,
    /// All changes are applied; the originals are kept.
    Done,
    /// Originals are being restored.
    Undoing,
}

impl ApplyJournal {
    /// Returns the last apply; `None` when its originals were discarded or nothing was applied.
    pub(crate) fn read(saved: &Path) -> io::Result<Option<Self>> {
        match read_json(&saved.join(NAME)) {
            Ok(this) => Ok(Some(this)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn write(&self, saved: &Path) -> io::Result<()> {
        write_json(saved, NAME, self)
    }

    /// Returns the directory of its originals.
    pub(crate) fn originals(&self, saved: &Path) -> PathBuf {
        saved.join(format!("originals.{}", self.id))
    }

    /// Removes the journal, and then the originals.
    pub(crate) fn remove(&self, saved: &Path) -> io::Result<()> {
        std::fs::remove_file(saved.join(NAME))?;
        sync_directory(saved)?;
        match std::fs::remove_dir_all(self.originals(saved)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns whether the apply or its undo was interrupted.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.state != ApplyState::Done
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = &SavedChange> {
        self.changes.iter()
    }
}
