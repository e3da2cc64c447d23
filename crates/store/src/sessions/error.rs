//! Why the sessions index refused or failed.

use protocol::{ProblemCode, SessionId};

use crate::{DatabaseError, is_disk_full};

/// Why the sessions index refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionIndexError {
    /// A session of that id exists.
    #[error("session `{0}` exists already")]
    AlreadyExists(SessionId),
    /// No session by that id, name or beginning of an id.
    #[error("no session `{0}`")]
    NotFound(String),
    /// More than one session begins so.
    #[error("`{reference}` may be any of {}", .matches.join(", "))]
    Ambiguous {
        /// What was asked for.
        reference: String,
        /// The first ids that begin so.
        matches: Vec<String>,
    },
    /// Somebody else took the session over.
    #[error("session `{0}` has another owner now")]
    OwnedByAnother(SessionId),
    /// The list cannot go on from here.
    #[error("`{0}` is no place in the list of sessions")]
    Cursor(String),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// What was written may not survive the power.
    #[error("the index of sessions cannot be brought to the disk")]
    Disk(#[source] std::io::Error),
    /// Whether an owner lives could not be found out.
    #[error("cannot look at the lock of an owner")]
    Owner(#[source] std::io::Error),
}

impl SessionIndexError {
    /// Stable identifier for clients.
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
