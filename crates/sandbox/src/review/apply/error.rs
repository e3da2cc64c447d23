//! Errors of apply, finish and undo.

use std::io;
use std::path::{Path, PathBuf};

use protocol::ProblemCode;

use super::context::StepError;
use super::refusal::{HostDifference, RefusalReason, RefusedPath};
use crate::review::json_path::quoted;

/// An error of apply, finish or undo.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Some changes were refused, so none was applied.
    #[error("{}", refused(.0))]
    Refused(Vec<RefusedPath>),
    /// An earlier apply of these changes was interrupted.
    #[error("an earlier apply was interrupted: finish or undo it first")]
    Unfinished,
    /// An undo was interrupted, and must be completed.
    #[error("an earlier undo was interrupted: undo the changes again")]
    Undoing,
    /// Nothing was applied, or its originals were discarded.
    #[error("nothing to finish or undo: no apply of these changes is recorded")]
    NothingApplied,
    /// The changes were saved again after they were read.
    #[error("the change set was replaced by a newer one, or was deleted: review the changes again")]
    Stale,
    /// The path changed during the apply. Everything was restored.
    #[error("`{}` changed during the apply: {difference}; nothing was applied", quoted(.path))]
    Raced {
        /// Relative to the workspace.
        path: PathBuf,
        /// How it changed.
        difference: HostDifference,
    },
    /// A step failed. Everything was restored.
    #[error("cannot apply `{}`; nothing was applied", quoted(.path))]
    Failed {
        /// Relative to the workspace.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Finishing or undoing stopped at this path, and can be retried.
    #[error("stopped at `{}`: the changes are applied in part; fix the cause, then finish or undo them", quoted(.path))]
    HalfApplied {
        /// Relative to the workspace.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Saved changes or the workspace cannot be read or written.
    #[error("cannot use the saved changes")]
    Io(#[from] io::Error),
}

impl ApplyError {
    /// Returns the stable error code.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Stale => ProblemCode::ChangeSetChanged,
            Self::Io(_) | Self::Failed { .. } | Self::HalfApplied { .. } => ProblemCode::Internal,
            _ => ProblemCode::ApplyConflict,
        }
    }

    pub(crate) fn stopped(path: &Path, stop: StepError) -> Self {
        let path = path.to_owned();
        match stop {
            StepError::Conflict(difference) => Self::Raced { path, difference },
            StepError::Io(source) => Self::Failed { path, source },
        }
    }

    /// Returns the error for a step that failed while earlier steps stay.
    pub(crate) fn half_applied(path: &Path, stop: StepError) -> Self {
        let path = path.to_owned();
        let source = match stop {
            StepError::Conflict(difference) => io::Error::other(difference.to_string()),
            StepError::Io(source) => source,
        };
        Self::HalfApplied { path, source }
    }

    /// Returns the error for paths that changed since they were applied.
    pub(crate) fn changed_since(obstacles: Vec<(&Path, HostDifference)>) -> Self {
        let refusal = |(path, difference): (&Path, HostDifference)| RefusedPath {
            path: path.to_owned(),
            reason: RefusalReason::Conflict(difference),
        };
        Self::Refused(obstacles.into_iter().map(refusal).collect())
    }
}

/// The most paths that a message names. The JSON of the error has all of them.
const SHOWN_PATHS: usize = 20;

fn refused(refusals: &[RefusedPath]) -> String {
    let mut text = "nothing was applied".to_owned();
    for (number, refusal) in refusals.iter().take(SHOWN_PATHS).enumerate() {
        text += &format!("{} {refusal}", if number == 0 { ":" } else { ";" });
    }
    if refusals.len() > SHOWN_PATHS {
        text += &format!(" (and {} more)", refusals.len() - SHOWN_PATHS);
    }
    text
}
