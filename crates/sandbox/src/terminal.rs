//! Terminals of commands, made in the sandbox's own instance of devpts.
//!
//! The caller's terminal is never passed inside. Output comes out as bytes, and the caller decides which of them reach its
//! own terminal.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{Mode, OFlags, fcntl_setfl, openat};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// The number of lines.
    pub rows: u16,
    /// The number of characters in a line.
    pub columns: u16,
}

impl WindowSize {
    /// Returns the size as a pair, which init takes.
    pub(crate) fn rows_and_columns(self) -> (u16, u16) {
        (self.rows, self.columns)
    }
}

/// Makes a terminal in the devpts instance `terminals`; returns the host's end and the command's end.
pub(crate) fn open(terminals: &OwnedFd, size: WindowSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = openat(terminals, "ptmx", flags, Mode::empty())?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    tcsetwinsize(&master, size.into())?;
    Ok((master, slave))
}

/// Splits the host's end of a terminal into its input and its output.
pub(crate) fn halves(master: &OwnedFd) -> io::Result<(pipe::Sender, TerminalOutput)> {
    fcntl_setfl(master, OFlags::RDWR | OFlags::NONBLOCK)?;
    // A terminal is not a pipe, but is read and written in the same way.
    let input = pipe::Sender::from_owned_fd_unchecked(master.try_clone()?)?;
    let output = pipe::Receiver::from_owned_fd_unchecked(master.try_clone()?)?;
    Ok((input, TerminalOutput(output)))
}

/// Sets the window size and notifies the programs inside the sandbox.
pub(crate) fn resize(master: &OwnedFd, size: WindowSize) {
    // This fails only when the terminal is gone.
    let _ = tcsetwinsize(master, size.into());
}

impl From<WindowSize> for Winsize {
    fn from(size: WindowSize) -> Self {
        Self { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// The output of a terminal.
pub(crate) struct TerminalOutput(pipe::Receiver);

impl AsyncRead for TerminalOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.0).poll_read(context, buffer)) {
            // `IO`: no process has the other end open, which is the end of the output.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => Poll::Ready(Ok(())),
            read => Poll::Ready(read),
        }
    }
}
