//! One change as it is kept and shown.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{FileStamp, json_path};
use crate::overlay::ChangeKind;

/// One path that differs from the host, kept so that it can be shown and applied when the sandbox is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedChange {
    /// Relative to the workspace; a text in JSON, or `{"bytes": […]}` where it is none.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// What happened to it.
    pub kind: ChangeKind,
    /// What the sandbox left there; `None` when it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<SavedEntry>,
    /// What the host had there when this was saved; `None` when there was nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<FileStamp>,
    /// The host's own file changed since the sandbox was made: neither side may overwrite the other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
}

/// What the sandbox left at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SavedEntry {
    /// A file.
    Regular {
        /// Permission bits, with setuid, setgid and sticky.
        mode: u32,
        /// Length in bytes.
        size: u64,
        /// Digest of its content, in hexadecimal; the content is kept under this name.
        sha256: String,
    },
    /// A directory; what lies in it is listed on its own.
    Directory {
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points, as written.
        #[serde(with = "json_path")]
        target: PathBuf,
    },
    /// A FIFO, socket or device. It was not opened, and is never applied.
    Special {
        /// Type and permission bits.
        mode: u32,
    },
    /// Something that could not be kept, and is never applied.
    Unsaved {
        /// Why not.
        reason: UnsavedReason,
    },
}

/// Why something was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsavedReason {
    /// It is larger than what is kept.
    TooLarge,
    /// Its path is too long.
    TooDeep,
    /// Its permissions shut us out.
    Unreadable,
    /// It was replaced while it was read.
    Vanished,
}

impl SavedChange {
    /// Digest of the kept content, for a regular file.
    pub(crate) fn sha256(&self) -> Option<&str> {
        match &self.entry {
            Some(SavedEntry::Regular { sha256, .. }) => Some(sha256),
            _ => None,
        }
    }
}
