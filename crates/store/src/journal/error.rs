//! Why a record could not be kept or read.

use std::io;
use std::path::{Path, PathBuf};

use protocol::{ProblemCode, SessionId};

/// Why a record could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk said no. Nothing half-written stays; the same record can be tried again.
    #[error("cannot {doing} the journal `{path}`")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The journal.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// `session.ended` is the last record of a session.
    #[error("the session has ended; nothing is recorded after its end")]
    Ended,
    /// The file is not what we wrote.
    #[error("the journal `{path}` is damaged at line {line}, byte {byte}")]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// Where that line begins, counted from 0.
        byte: u64,
        /// What is wrong with it.
        #[source]
        defect: LineDefect,
    },
    /// Another process writes this journal.
    #[error("the journal `{0}` is being written by another process")]
    InUse(PathBuf),
    /// The record nests deeper than a JSON reader follows, so it could never be read again.
    #[error("the record nests {depth} levels deep, {max} can be read back")]
    TooDeep {
        /// Levels of the record.
        depth: usize,
        /// Levels a reader follows.
        max: usize,
    },
    /// The record is larger than any reader takes.
    #[error("the record has {bytes} bytes, {max} can be read back")]
    TooLarge {
        /// Bytes of the record.
        bytes: usize,
        /// Bytes a reader takes.
        max: usize,
    },
    /// The record has no JSON form.
    #[error("cannot write the record as JSON")]
    Encode(#[source] serde_json::Error),
}

/// What is wrong with a line of a journal.
#[derive(Debug, thiserror::Error)]
pub enum LineDefect {
    /// No JSON, or not one of our records.
    #[error("it is no record")]
    NotARecord(#[source] serde_json::Error),
    /// Longer than any record of ours.
    #[error("it has more than {0} bytes")]
    TooLong(usize),
    /// A record of another session.
    #[error("it belongs to session `{0}`")]
    OtherSession(SessionId),
    /// Records are missing, or there twice.
    #[error("it is numbered {found}, {expected} was expected")]
    Gap {
        /// The number that should stand here.
        expected: u64,
        /// The number that stands here.
        found: u64,
    },
    /// It does not follow from the line before: one of the two was changed.
    #[error("it does not carry the hash of the line before")]
    BrokenChain,
    /// Nothing is recorded after `session.ended`.
    #[error("it stands after the end of the session")]
    AfterEnd,
    /// The file is shorter or longer than what was written to it.
    #[error("the file has {found} bytes, {expected} were written")]
    Length {
        /// Bytes written.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// Records that were there are gone.
    #[error("{expected} records were there, {found} are left")]
    Missing {
        /// How many there were at least.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// What follows the last whole line is not the beginning of a record of ours.
    #[error("what stands there is not the beginning of record {0}")]
    Foreign(u64),
}

impl JournalError {
    /// Stable identifier for clients.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Ended => ProblemCode::SessionEnded,
            Self::TooLarge { .. } => ProblemCode::BodyTooLarge,
            Self::Damaged { .. } => ProblemCode::JournalDamaged,
            _ => ProblemCode::JournalUnavailable,
        }
    }

    /// For `map_err`: names the step and the file.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}
