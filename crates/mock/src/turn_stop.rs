//! What ends a turn early, and what ends the process.

use std::io;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    /// With this exit code.
    Exit(u8),
    /// By `SIGABRT`.
    Abort,
    /// Not at all: it lives on and does nothing.
    Hang,
}

/// Why a turn did not come to its end.
#[derive(Debug)]
pub(crate) enum TurnStop {
    /// Somebody asked it to stop, or nobody is left to answer.
    Interrupted,
    /// It failed, and said so.
    Failed,
    /// The process ends with it.
    ProcessEnds(ProcessEnd),
}

impl From<io::Error> for TurnStop {
    /// Nobody reads what we print: there is nothing left to live for.
    fn from(_: io::Error) -> Self {
        Self::ProcessEnds(ProcessEnd::Exit(1))
    }
}
