//! Reasons to end a turn early or to end the process.

use std::io;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    /// Exit with this code.
    Exit(u8),
    /// Abort with `SIGABRT`.
    Abort,
    /// Keep running without doing anything.
    Hang,
}

/// The reason why a turn ended early.
#[derive(Debug)]
pub(crate) enum TurnStop {
    /// Interrupted, or stdin is closed.
    Interrupted,
    /// Failed; the error was reported.
    Failed,
    /// The process ends.
    ProcessEnds(ProcessEnd),
}

impl From<io::Error> for TurnStop {
    /// Nobody reads the output, so the process ends.
    fn from(_: io::Error) -> Self {
        Self::ProcessEnds(ProcessEnd::Exit(1))
    }
}
