//! Our own terminal while a program of a sandbox uses it: raw while the program runs, restored afterwards.
//!
//! The program never gets this terminal. It has a pseudo-terminal in the sandbox, which receives every key as bytes,
//! Ctrl-C included. Its output passes a filter.

use protocol::ProblemCode;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandbox::WindowSize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::output;

/// Our terminal in raw mode; dropping this restores the old mode.
pub(crate) struct RawTerminal {
    before: Termios,
    window: watch::Receiver<WindowSize>,
    /// Task that follows the size of the window.
    _watching: JoinSet<()>,
}

impl RawTerminal {
    /// Switches the terminal to raw mode; fails if stdin or stdout is not a terminal.
    pub(crate) fn enter() -> Result<Self, Failure> {
        if !output::stdin_is_terminal() || !output::stdout_is_terminal() {
            return Err(Failure::new(ProblemCode::InvalidRequest, "`--tty` needs a terminal on stdin and stdout")
                .help("viv exec -- ls"));
        }
        let failed = |error: &dyn std::error::Error| Failure::from_error(ProblemCode::Internal, error);
        let mut changes = signal(SignalKind::window_change()).map_err(|error| failed(&error))?;
        let before = tcgetattr(std::io::stdin()).map_err(|error| failed(&error))?;
        let (tell, window) = watch::channel(window_size());
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            while changes.recv().await.is_some() {
                tell.send_replace(window_size());
            }
        });
        let mut raw = before.clone();
        raw.make_raw();
        // Made before the mode changes, so that an error or a panic restores the old mode.
        let this = Self { before, window, _watching: watching };
        tcsetattr(std::io::stdin(), OptionalActions::Drain, &raw).map_err(|error| failed(&error))?;
        Ok(this)
    }

    /// Returns a receiver for the size of the window.
    pub(crate) fn window(&self) -> watch::Receiver<WindowSize> {
        self.window.clone()
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that was closed needs no restoring.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Returns the size of our window.
pub(crate) fn window_size() -> WindowSize {
    let (rows, columns) = tcgetwinsize(std::io::stdin()).map_or((0, 0), |size| (size.ws_row, size.ws_col));
    // Terminals that report no size get the traditional 80 columns.
    if rows == 0 || columns == 0 { WindowSize { rows: 24, columns: 80 } } else { WindowSize { rows, columns } }
}
