//! One saved change.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{FileStamp, json_path};
use crate::overlay::ChangeKind;

/// One path that differs from the host, saved so that it can be shown and applied after the sandbox has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedChange {
    /// The path relative to the workspace. In JSON a text, or `{"bytes": […]}` when it is not UTF-8.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The entry that the sandbox left; `None` when it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<SavedEntry>,
    /// The stamp of the host's file when the change was saved; `None` when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<FileStamp>,
    /// Whether the host's file changed since the sandbox was made, so that neither may overwrite the other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
}

/// The entry that the sandbox left at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SavedEntry {
    /// A file.
    Regular {
        /// Permission bits, with setuid, setgid and sticky.
        mode: u32,
        /// Length in bytes.
        size: u64,
        /// The digest of its content in hexadecimal, which is also the name of the saved content.
        sha256: String,
    },
    /// A directory. Its entries are separate changes.
    Directory {
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Symlink {
        /// The target of the link, as written.
        #[serde(with = "json_path")]
        target: PathBuf,
    },
    /// A FIFO, socket or device. It was not opened, and is never applied.
    Special {
        /// Type and permission bits.
        mode: u32,
    },
    /// A file that could not be saved, and is never applied.
    Unsaved {
        /// The reason.
        reason: UnsavedReason,
    },
}

/// Why a file was not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsavedReason {
    /// The file is larger than the limit.
    TooLarge,
    /// The path is too long.
    TooDeep,
    /// The permissions do not allow to read it.
    Unreadable,
    /// The file was replaced while it was read.
    Vanished,
}

impl SavedChange {
    /// Compares the entry with another state of the host from now on.
    pub(crate) fn rebase(&mut self, base: Option<FileStamp>) {
        self.base = base;
        self.conflict = false;
        self.kind = match (&self.entry, base) {
            (None, _) => ChangeKind::Deleted,
            (Some(_), None) => ChangeKind::Added,
            (Some(_), Some(_)) => ChangeKind::Modified,
        };
    }

    /// Returns the digest of the saved content of a regular file.
    pub(crate) fn sha256(&self) -> Option<&str> {
        match &self.entry {
            Some(SavedEntry::Regular { sha256, .. }) => Some(sha256),
            _ => None,
        }
    }
}
