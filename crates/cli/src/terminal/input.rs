//! Keys from our terminal, read without a thread.
//!
//! A thread that waits in `read` would take the first line of the question that follows.

use std::io;

use rustix::fs::{Mode, OFlags};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// Our terminal, opened again, because the non-blocking mode belongs to an open file that other programs share.
pub(super) struct KeyInput(pipe::Receiver);

impl KeyInput {
    pub(super) fn open() -> io::Result<Self> {
        let path = rustix::termios::ttyname(io::stdin(), Vec::new())?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(path, flags, Mode::empty())?;
        // A terminal is not a pipe, but is read in the same way.
        Ok(Self(pipe::Receiver::from_owned_fd_unchecked(terminal)?))
    }

    /// Returns the next bytes; an empty vector when the terminal is closed. Cancel-safe.
    pub(super) async fn next(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; 64 * 1024];
        let read = self.0.read(&mut buffer).await?;
        buffer.truncate(read);
        Ok(buffer)
    }
}
