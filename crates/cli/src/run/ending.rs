//! The end of a conversation with its exit code, and the output format of events.

use std::process::ExitCode;

use protocol::TurnOutcome;

use crate::signals::StopSignal;

/// End of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnding {
    /// The turn ended.
    Turn(TurnOutcome),
    /// A signal stopped viv.
    Stopped(StopSignal),
}

impl RunEnding {
    /// Returns the exit code.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Turn(TurnOutcome::Completed) => ExitCode::SUCCESS,
            Self::Turn(TurnOutcome::Failed) => ExitCode::from(1),
            Self::Turn(TurnOutcome::TimedOut) => ExitCode::from(124),
            Self::Turn(TurnOutcome::Interrupted) => StopSignal::Interrupt.exit_code(),
            Self::Stopped(stop) => stop.exit_code(),
        }
    }
}

/// Output format of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOutput {
    /// Messages of the agent on stdout, other events on stderr.
    Text,
    /// All events on stdout as readable lines.
    Tour,
    /// All events on stdout as JSON lines.
    Json,
}
