//! Errors of the sessions index.

use protocol::{ProblemCode, SessionId};

use crate::{DatabaseError, is_disk_full};

/// An operation of the sessions index was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionIndexError {
    /// A session with that id exists.
    #[error("session `{0}` already exists")]
    AlreadyExists(SessionId),
    /// No session has that id, name or id prefix.
    #[error("session `{0}` not found")]
    NotFound(String),
    /// Several session ids start with the reference.
    #[error("`{reference}` is ambiguous; it matches {}", .matches.join(", "))]
    Ambiguous {
        /// The reference.
        reference: String,
        /// The first matching ids.
        matches: Vec<String>,
    },
    /// Another process took the session over.
    #[error("session `{0}` was taken over by another process")]
    OwnedByAnother(SessionId),
    /// The cursor is invalid.
    #[error("invalid session list cursor `{0}`")]
    Cursor(String),
    /// A query failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The index could not be synced, so a power cut may lose the last changes.
    #[error("cannot sync the sessions index to disk")]
    Disk(#[source] std::io::Error),
    /// The lock of an owner could not be checked.
    #[error("cannot check the lock of a session's owner")]
    Owner(#[source] std::io::Error),
}

impl SessionIndexError {
    /// Returns the stable code for clients.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::AlreadyExists(_) => ProblemCode::SessionAlreadyExists,
            Self::NotFound(_) => ProblemCode::SessionNotFound,
            Self::Ambiguous { .. } | Self::Cursor(_) => ProblemCode::InvalidRequest,
            Self::Database(_) | Self::Disk(_) if is_disk_full(self) => ProblemCode::DiskFull,
            Self::Database(DatabaseError::Io { .. }) | Self::Disk(_) => ProblemCode::JournalUnavailable,
            Self::OwnedByAnother(_) | Self::Database(_) | Self::Owner(_) => ProblemCode::Internal,
        }
    }
}

impl From<rusqlite::Error> for SessionIndexError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.into())
    }
}
