//! The terminal of the person who runs `viv exec --tty`: raw while the command runs, as it was in any case after.
//!
//! It is never given to the command, which has one of its own inside. Keys go there as bytes, also those that
//! would be signals here; what comes back is shown through [`Outlet`](crate::outlet::Outlet).

use std::io::IsTerminal;

use protocol::ProblemCode;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandbox::WindowSize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::Failure;

/// Our terminal, raw until this is dropped.
pub(super) struct RawTerminal {
    before: Termios,
    window: watch::Receiver<WindowSize>,
    /// Watches the size of the window; ends with this.
    _watching: JoinSet<()>,
}

impl RawTerminal {
    /// Makes the terminal raw; refused where there is none.
    pub(super) fn enter() -> Result<Self, Failure> {
        if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            return Err(Failure::new(ProblemCode::InvalidRequest, "`--tty` needs a terminal on stdin and stdout")
                .help("viv exec -- CMD"));
        }
        let failed = |error: &dyn std::error::Error| Failure::of(ProblemCode::Internal, error);
        let mut changes = signal(SignalKind::window_change()).map_err(|error| failed(&error))?;
        let before = tcgetattr(std::io::stdin()).map_err(|error| failed(&error))?;
        let (tell, window) = watch::channel(size());
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            while changes.recv().await.is_some() {
                tell.send_replace(size());
            }
        });
        let mut raw = before.clone();
        raw.make_raw();
        // From here on it is put back by whoever drops this, an error and a panic included.
        let this = Self { before, window, _watching: watching };
        tcsetattr(std::io::stdin(), OptionalActions::Drain, &raw).map_err(|error| failed(&error))?;
        Ok(this)
    }

    /// The size of the window, as it changes.
    pub(super) fn window(&self) -> watch::Receiver<WindowSize> {
        self.window.clone()
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no putting back.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.before);
    }
}

fn size() -> WindowSize {
    let (rows, columns) = tcgetwinsize(std::io::stdin()).map_or((0, 0), |size| (size.ws_row, size.ws_col));
    // A terminal that does not know its size is taken for the oldest of all.
    if rows == 0 || columns == 0 { WindowSize { rows: 24, columns: 80 } } else { WindowSize { rows, columns } }
}
