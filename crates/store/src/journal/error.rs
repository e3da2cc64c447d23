//! Errors of writing and reading a journal.

use std::io;
use std::path::{Path, PathBuf};

use protocol::{ProblemCode, SessionId};

use crate::StorageExceeded;

/// A record could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A system call failed. The file holds whole records only, and the same record can be tried again.
    #[error("cannot {doing} the journal `{path}`")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The journal.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// `session.ended` is the last record of a session.
    #[error("the session has ended; nothing can be recorded after `session.ended`")]
    Ended,
    /// The file differs from the records that were written.
    #[error("the journal `{path}` is damaged at line {line}, byte {byte}")]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// Offset of the line's first byte, counted from 0.
        byte: u64,
        /// The defect.
        #[source]
        defect: LineDefect,
    },
    /// Another process writes this journal.
    #[error("another process is writing the journal `{0}`")]
    InUse(PathBuf),
    /// The record nests deeper than JSON readers accept.
    #[error("record nested too deeply: {depth} levels, at most {max} are allowed")]
    TooDeep {
        /// Levels of the record.
        depth: usize,
        /// Levels allowed.
        max: usize,
    },
    /// The record is longer than readers accept.
    #[error("record too large: {bytes} bytes, at most {max} are allowed")]
    TooLarge {
        /// Bytes of the record.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The session has no disk space left for the record.
    #[error("cannot record: {0}")]
    StorageLimit(#[source] StorageExceeded),
    /// The record cannot be written as JSON.
    #[error("cannot encode the record as JSON")]
    Encode(#[source] serde_json::Error),
}

/// A defect of one line of a journal.
#[derive(Debug, thiserror::Error)]
pub enum LineDefect {
    /// The line is not JSON, or not a journal record.
    #[error("the line is not a journal record")]
    NotARecord(#[source] serde_json::Error),
    /// The line is longer than any record.
    #[error("the line has more than {0} bytes")]
    TooLong(usize),
    /// The record belongs to another session.
    #[error("the record belongs to session `{0}`")]
    OtherSession(SessionId),
    /// Records are missing or repeated.
    #[error("the record has number {found}, expected {expected}")]
    Gap {
        /// The expected number.
        expected: u64,
        /// The number in the line.
        found: u64,
    },
    /// This line or the line before it was changed.
    #[error("the hash of the previous line does not match")]
    BrokenChain,
    /// The record follows `session.ended`.
    #[error("the record follows the end of the session")]
    AfterEnd,
    /// The length of the file differs from the bytes that were written.
    #[error("the file has {found} bytes, expected {expected}")]
    Length {
        /// Bytes written.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// Records that were known before are gone.
    #[error("the journal has {found} records, expected at least {expected}")]
    Missing {
        /// Records known before.
        expected: u64,
        /// Records found.
        found: u64,
    },
    /// The bytes after the last whole line cannot be a record that a crash cut off.
    #[error("unexpected bytes where record {0} should start")]
    Foreign(u64),
}

impl JournalError {
    /// Returns the stable code for clients.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Ended => ProblemCode::SessionEnded,
            Self::TooLarge { .. } => ProblemCode::BodyTooLarge,
            Self::Damaged { .. } => ProblemCode::JournalDamaged,
            Self::StorageLimit(exceeded) => exceeded.code(),
            _ => ProblemCode::JournalUnavailable,
        }
    }

    /// Returns a function for `map_err` that adds the failed step and the file.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}
