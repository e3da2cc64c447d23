//! A terminal inside a sandbox, and its other end outside.
//!
//! The pair belongs to the sandbox's own instance of devpts. No terminal of the caller ever goes inside: what is
//! written there comes out as bytes, and whoever shows them decides what they may do.

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

/// How large a terminal is, in letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Letters a line.
    pub columns: u16,
}

impl WindowSize {
    /// As the init inside takes it.
    pub(crate) fn rows_and_columns(self) -> (u16, u16) {
        (self.rows, self.columns)
    }
}

/// Makes a terminal in the devpts instance `terminals`: the end outside, and the one for the command.
pub(crate) fn open(terminals: &OwnedFd, size: WindowSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = openat(terminals, "ptmx", flags, Mode::empty())?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    tcsetwinsize(&master, size.into())?;
    Ok((master, slave))
}

/// The end of a terminal that stays outside, in two halves: where is typed, and where is shown.
pub(crate) fn halves(master: &OwnedFd) -> io::Result<(pipe::Sender, Shown)> {
    fcntl_setfl(master, OFlags::RDWR | OFlags::NONBLOCK)?;
    // No pipe, but read and written as one.
    let typed = pipe::Sender::from_owned_fd_unchecked(master.try_clone()?)?;
    let shown = pipe::Receiver::from_owned_fd_unchecked(master.try_clone()?)?;
    Ok((typed, Shown(shown)))
}

/// Tells the programs inside that the window has another size.
pub(crate) fn resize(master: &OwnedFd, size: WindowSize) {
    // A terminal that is gone has no size.
    let _ = tcsetwinsize(master, size.into());
}

impl From<WindowSize> for Winsize {
    fn from(size: WindowSize) -> Self {
        Self { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// What a terminal shows.
pub(crate) struct Shown(pipe::Receiver);

impl AsyncRead for Shown {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.0).poll_read(context, buffer)) {
            // Nobody has the other end open any more.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => Poll::Ready(Ok(())),
            read => Poll::Ready(read),
        }
    }
}
