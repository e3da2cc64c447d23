//! Errors of importing and applying commits.

use std::io;
use std::time::Duration;

use protocol::ProblemCode;

use super::ref_name::shell_word;
use crate::review::RefusedPath;

/// An error of importing or applying the commits of a session.
#[derive(Debug, thiserror::Error)]
pub enum CommitsError {
    /// Git is not installed, or cannot be started.
    #[error("cannot start git, which imports the commits of the session")]
    NoGit(#[source] io::Error),
    /// The kind of repository is not supported.
    #[error("cannot import the commits of the session: {0}")]
    Unsupported(String),
    /// Git found an invalid object, or an object is missing. Nothing was imported.
    #[error("git refused the commits of the session: {0}")]
    Refused(String),
    /// The saved objects are larger than the limit.
    #[error("the objects of the session are {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// The size of the objects.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Git ran longer than the limit.
    #[error("git did not finish within {} seconds", .0.as_secs())]
    TimedOut(Duration),
    /// The commits are not those that were reviewed.
    #[error("the commits of the session changed after the review: review them again")]
    Stale,
    /// The session has no commits for the branch.
    #[error("the session has no commits to apply")]
    NoCommits,
    /// The commits cannot be applied by moving the host's branch forward.
    #[error("the commits were not applied: {why}; they are at `{reference}`")]
    NotForward {
        /// The reason.
        why: String,
        /// The reference that has the commits.
        reference: String,
    },
    /// The commits change paths that are not applied.
    #[error("the commits were not applied: {}; they are at `{reference}`", first_of(.paths))]
    Denied {
        /// The paths with the reasons.
        paths: Vec<RefusedPath>,
        /// The reference that has the commits.
        reference: String,
    },
    /// The saved changes cannot be read or written.
    #[error("cannot use the saved changes")]
    Io(#[from] io::Error),
}

impl CommitsError {
    /// Returns the stable error code.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Io(_) | Self::NoGit(_) => ProblemCode::Internal,
            Self::TimedOut(_) | Self::Unsupported(_) | Self::Refused(_) | Self::TooLarge { .. } => {
                ProblemCode::CommitsRefused
            }
            Self::Stale | Self::NoCommits | Self::NotForward { .. } | Self::Denied { .. } => ProblemCode::ApplyConflict,
        }
    }

    /// Returns the command that merges the commits by hand, if they were imported. There is none for commits with refused
    /// paths: a person who pasted it would apply exactly these paths.
    pub fn merge_command(&self) -> Option<String> {
        match self {
            Self::NotForward { reference, .. } => Some(merge_command(reference)),
            _ => None,
        }
    }
}

/// Returns the command that merges a reference, to be pasted into a shell.
pub(crate) fn merge_command(reference: &str) -> String {
    format!("git merge {}", shell_word(reference))
}

fn first_of(paths: &[RefusedPath]) -> String {
    match paths {
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
        [] => "a path is refused".to_owned(),
    }
}
