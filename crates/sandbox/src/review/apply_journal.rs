//! What an apply set out to do: written before the first change, so that a crash can be finished or undone.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::manifest::{read_json, sync_directory, write_json};
use super::{SavedChange, json_path};

const NAME: &str = "apply.journal";

/// One apply. How far it came is seen from the files themselves, never from a note about them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ApplyJournal {
    /// Stands in the names of its temporary files.
    pub(crate) id: String,
    /// The directory on the host.
    #[serde(with = "json_path")]
    pub(crate) workspace: PathBuf,
    pub(crate) state: ApplyState,
    pub(crate) changes: Vec<SavedChange>,
}

/// How far the whole has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ApplyState {
    /// Some changes may be on the host, and some not.
    Started,
    /// All of them are; the originals are still kept.
    Done,
    /// Originals are being put back.
    Undoing,
}

impl ApplyJournal {
    /// The last apply, if its originals are still kept.
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

    /// Where its originals are kept.
    pub(crate) fn originals(&self, saved: &Path) -> PathBuf {
        saved.join(format!("originals.{}", self.id))
    }

    /// Forgets the apply, and then its originals.
    pub(crate) fn remove(&self, saved: &Path) -> io::Result<()> {
        std::fs::remove_file(saved.join(NAME))?;
        sync_directory(saved)?;
        match std::fs::remove_dir_all(self.originals(saved)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether it stopped halfway, in either direction.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.state != ApplyState::Done
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = &SavedChange> {
        self.changes.iter()
    }
}
