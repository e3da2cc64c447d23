//! Shows the terminal of a session on ours until the agent ends, the person detaches, or `viv` is told to stop.

use base::TerminalFilter;
use protocol::ProblemCode;
use session::{RESTORE_TERMINAL, TerminalUpdate};

use super::input::KeyInput;
use super::{KeyReader, RawTerminal, TerminalLink, TypedKey};
use crate::failure::Failure;
use crate::output;
use crate::signals::{StopSignal, StopSignals};

/// Why the screen is no longer shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScreenEnd {
    /// The agent has ended.
    AgentEnded,
    /// The person detached; the agent goes on.
    Detached,
    /// A signal stopped `viv`.
    Stopped(StopSignal),
}

/// The keys that `viv` handles itself.
pub(crate) struct ScreenKeys {
    /// Finds the keys.
    pub(crate) reader: KeyReader,
    /// Whether typed keys go to the agent.
    pub(crate) types: bool,
}

/// Restores our terminal when it is dropped, also after an error.
struct ShownScreen {
    raw: Option<RawTerminal>,
    input: KeyInput,
    filter: TerminalFilter,
}

/// Shows the terminal behind `link`.
pub(crate) async fn show(
    link: &mut TerminalLink,
    mut keys: ScreenKeys,
    signals: &mut StopSignals,
) -> Result<ScreenEnd, Failure> {
    let mut screen = ShownScreen::enter()?;
    loop {
        let mut window = screen.window();
        window.mark_unchanged();
        tokio::select! {
            update = link.next() => match update? {
                Some(TerminalUpdate::Output(bytes)) => screen.draw(&bytes)?,
                Some(TerminalUpdate::Resized(_)) => {}
                None => return Ok(ScreenEnd::AgentEnded),
            },
            typed = screen.input.next() => {
                let typed = typed.map_err(|error| failed(&error))?;
                if typed.is_empty() {
                    return Ok(ScreenEnd::Stopped(StopSignal::Terminate));
                }
                for key in keys.reader.read(&typed) {
                    match key {
                        TypedKey::Bytes(bytes) if keys.types => link.write(bytes).await?,
                        TypedKey::Bytes(_) => {}
                        TypedKey::Detach => return Ok(ScreenEnd::Detached),
                        TypedKey::Suspend => suspend(&mut screen, link).await?,
                    }
                }
            }
            Ok(()) = window.changed() => {
                let size = *window.borrow();
                link.resize(size).await?;
            }
            stop = signals.received() => return Ok(ScreenEnd::Stopped(stop)),
        }
    }
}

/// Gives our terminal back to the shell, stops this process, and draws the screen again when it continues.
async fn suspend(screen: &mut ShownScreen, link: &mut TerminalLink) -> Result<(), Failure> {
    screen.leave();
    // Without a shell that waits for us, the signal has no effect, and we continue at once.
    let stopped = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP);
    stopped.map_err(|error| failed(&error))?;
    screen.raw = Some(RawTerminal::enter()?);
    link.resize(super::window_size()).await?;
    let drawn = link.redraw().await?;
    screen.draw(&drawn)
}

impl ShownScreen {
    fn enter() -> Result<Self, Failure> {
        let input = KeyInput::open().map_err(|error| failed(&error))?;
        // The process that runs the session has applied the policy's clipboard rule.
        Ok(Self { raw: Some(RawTerminal::enter()?), input, filter: TerminalFilter::new(true) })
    }

    fn window(&self) -> tokio::sync::watch::Receiver<sandbox::WindowSize> {
        self.raw.as_ref().map_or_else(|| tokio::sync::watch::channel(super::window_size()).1, RawTerminal::window)
    }

    fn draw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let shown = self.filter.pass(bytes).with_queries;
        output::write_screen(&shown).map_err(|error| Failure::output_failed(&error))
    }

    fn leave(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = output::write_screen(RESTORE_TERMINAL.as_bytes());
        // Answers of the terminal to late queries must not become input of the shell.
        let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
        self.raw = None;
    }
}

impl Drop for ShownScreen {
    fn drop(&mut self) {
        self.leave();
    }
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::from_error(ProblemCode::Internal, error)
}
