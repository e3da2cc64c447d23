//! Being told to stop: Ctrl-C and SIGTERM end what runs in order, with the exit code that a shell expects.

use std::process::ExitCode;

use protocol::ProblemCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Who told us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, and a terminal that was closed.
    Terminate,
}

impl StopSignal {
    /// 128 and the number of the signal.
    pub(crate) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        })
    }
}

/// Signals, from when this was made: none is lost while nobody waits.
#[derive(Debug)]
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Takes the signals; from now on they do not end the process by themselves.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let take = |kind| {
            signal(kind).map_err(|error| Failure::new(ProblemCode::Internal, "cannot take signals").because(&error))
        };
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hangup: take(SignalKind::hangup())?,
        })
    }

    /// Returns when one has come.
    pub(crate) async fn received(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.hangup.recv() => StopSignal::Terminate,
        }
    }
}
