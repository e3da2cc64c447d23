//! Signals that stop `viv` in order, with the exit code that a shell expects.

use std::process::ExitCode;

use protocol::ProblemCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signal that stopped us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, or SIGHUP from a closed terminal.
    Terminate,
}

impl StopSignal {
    /// Returns 128 plus the number of the signal.
    pub(crate) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        })
    }
}

/// Receiver of stop signals. No signal after its creation is lost.
#[derive(Debug)]
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Installs the handlers; from now on these signals do not end the process.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let install = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(ProblemCode::Internal, "cannot install the signal handlers").because(&error)
            })
        };
        Ok(Self {
            interrupt: install(SignalKind::interrupt())?,
            terminate: install(SignalKind::terminate())?,
            hangup: install(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn received(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.hangup.recv() => StopSignal::Terminate,
        }
    }
}
