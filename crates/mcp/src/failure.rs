//! Failed calls, as results that a model can act on: what failed, the rule, and the remedy.

use base::error_chain;
use policy::{PolicyError, WideningDenied};
use protocol::{ProblemCode, SessionId};
use rmcp::model::{CallToolResult, ContentBlock};
use sandbox::{FilesError, SandboxError};
use session::SessionError;

/// Why a tool call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolFailure {
    /// An argument is invalid.
    #[error("{what}")]
    Invalid {
        /// The argument and the rule that it breaks.
        what: String,
        /// An example of a valid argument, or another remedy.
        help: String,
    },
    /// The session cannot be created, or a command cannot run.
    #[error(transparent)]
    Session(Box<SessionError>),
    /// A file cannot be read or written.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// `policy` is not a valid part of a policy document.
    #[error("`policy` is invalid")]
    Policy(#[from] PolicyError),
    /// `policy` requests more than the session's policy allows.
    #[error("`policy` can only narrow")]
    Widening(#[from] WideningDenied),
    /// The sandbox ended while the call ran or waited.
    #[error("the sandbox of session `{0}` has ended")]
    Ended(SessionId),
    /// The client cancelled the call.
    #[error("the call was cancelled; its processes were killed")]
    Cancelled,
    /// The record could not be read.
    #[error("cannot read the record of the session")]
    Record(#[from] store::JournalError),
}

impl From<SessionError> for ToolFailure {
    fn from(error: SessionError) -> Self {
        Self::Session(Box::new(error))
    }
}

impl ToolFailure {
    /// Returns the failure of an invalid argument.
    pub(crate) fn invalid(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), help: help.into() }
    }

    /// Returns the stable code.
    fn code(&self) -> ProblemCode {
        match self {
            Self::Invalid { .. } => ProblemCode::InvalidRequest,
            Self::Session(error) if is_bad_program(error) => ProblemCode::InvalidRequest,
            Self::Session(error) => error.code(),
            Self::Files(error) => error.code(),
            Self::Policy(error) => error.code(),
            Self::Widening(error) => error.code(),
            Self::Ended(_) | Self::Cancelled => ProblemCode::SessionEnded,
            Self::Record(_) => ProblemCode::Internal,
        }
    }

    fn help(&self) -> Option<String> {
        let text = |help: &str| Some(help.to_owned());
        match self {
            Self::Invalid { help, .. } => Some(help.clone()),
            Self::Session(error) if is_bad_program(error) => {
                text(r#"list the programs with {"argv": ["ls", "/usr/bin"]}"#)
            }
            Self::Session(error) => error.hint(),
            Self::Files(FilesError::Outside(_)) => text("use a path relative to /workspace, without `..`"),
            Self::Files(FilesError::NotFound(_)) => text("list the directory with `list_files`"),
            Self::Files(FilesError::Full(_)) => text("remove files with `run`, or call `run` with `fresh: true`"),
            Self::Policy(_) => text(r#"{"policy": {"net": {"enabled": false}, "proc": {"timeout": "30s"}}}"#),
            Self::Widening(_) => text("call without these keys; only the user can allow more"),
            Self::Ended(_) => text("call `run` again: it starts a new sandbox from the user's files"),
            Self::Files(_) | Self::Cancelled | Self::Record(_) => None,
        }
    }

    /// Returns the failure as the result of a call.
    pub(crate) fn into_result(self) -> CallToolResult {
        let mut text = format!("error[{}]: {}", self.code().as_str(), error_chain(&self));
        if let Some(help) = self.help() {
            text.push_str("\nhelp: ");
            text.push_str(&help);
        }
        CallToolResult::error(vec![ContentBlock::text(text)])
    }
}

/// Returns whether the program of a command is missing or cannot be executed.
fn is_bad_program(error: &SessionError) -> bool {
    matches!(error, SessionError::Sandbox(SandboxError::NotFound(_) | SandboxError::NotExecutable(_)))
}
