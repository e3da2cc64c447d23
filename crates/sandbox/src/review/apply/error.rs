//! Why an apply, or its undoing, was refused or failed.

use std::io;
use std::path::{Path, PathBuf};

use protocol::ProblemCode;

use super::context::StepError;
use super::refusal::{HostDifference, RefusalReason, RefusedPath};
use crate::review::json_path::quoted;

/// Why nothing was applied, or not all was undone.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Some changes must not be applied, so none was.
    #[error("{}", refused(.0))]
    Refused(Vec<RefusedPath>),
    /// An earlier apply of these changes stopped halfway.
    #[error("an earlier apply stopped halfway: finish or undo it first")]
    Unfinished,
    /// Undoing has begun, and cannot be turned round.
    #[error("undoing these changes stopped halfway: undo them again")]
    Undoing,
    /// Nothing was applied, or its originals were discarded.
    #[error("there is no apply to finish or undo")]
    NothingApplied,
    /// The list is not the one that was looked at.
    #[error("these changes were saved again meanwhile: look at them again")]
    Stale,
    /// Somebody changed the path at this very moment. Everything was put back.
    #[error("`{}` changed at this moment: {difference}; nothing was applied", quoted(.path))]
    Raced {
        /// Relative to the workspace.
        path: PathBuf,
        /// How it changed.
        difference: HostDifference,
    },
    /// A step failed. Everything was put back.
    #[error("cannot apply `{}`; nothing was applied", quoted(.path))]
    Failed {
        /// Relative to the workspace.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// Finishing or undoing stopped here, and can be tried again.
    #[error("stopped at `{}`: changes are applied in part, finish or undo them when it is mended", quoted(.path))]
    HalfApplied {
        /// Relative to the workspace.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// Saved changes or the workspace cannot be read or written.
    #[error("cannot use the saved changes")]
    Io(#[from] io::Error),
}

impl ApplyError {
    /// Stable identifier for clients.
    pub fn code(&self) -> ProblemCode {
        match self {
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

    /// For a step that could not be taken, where those before it stay.
    pub(crate) fn half_applied(path: &Path, stop: StepError) -> Self {
        let path = path.to_owned();
        let source = match stop {
            StepError::Conflict(difference) => io::Error::other(difference.to_string()),
            StepError::Io(source) => source,
        };
        Self::HalfApplied { path, source }
    }

    /// For what changed since it was applied.
    pub(crate) fn changed_since(hindrances: Vec<(&Path, HostDifference)>) -> Self {
        let refusal = |(path, difference): (&Path, HostDifference)| RefusedPath {
            path: path.to_owned(),
            reason: RefusalReason::Conflict(difference),
        };
        Self::Refused(hindrances.into_iter().map(refusal).collect())
    }
}

fn refused(refusals: &[RefusedPath]) -> String {
    match refusals {
        [one] => format!("nothing was applied: {one}"),
        [first, rest @ ..] => format!("nothing was applied: {first} (and {} more)", rest.len()),
        [] => "nothing was applied".to_owned(),
    }
}
