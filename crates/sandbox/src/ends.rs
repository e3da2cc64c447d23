//! Both ends of a command's streams: those it is given, and those that stay outside.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

use crate::{WindowSize, terminal};

/// Says that the window has another size.
pub(crate) type Resize = Box<dyn Fn(WindowSize) + Send + Sync>;

/// Both ends of a command's streams.
pub(crate) struct Ends {
    /// Standard input, output and error of the command.
    theirs: [OwnedFd; 3],
    stdin: Box<dyn AsyncWrite + Send + Unpin>,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    stderr: Box<dyn AsyncRead + Send + Unpin>,
    resize: Resize,
}

impl Ends {
    /// Three pipes.
    pub(crate) fn pipes() -> io::Result<Self> {
        let (stdin, their_stdin) = pipe::pipe()?;
        let (their_stdout, stdout) = pipe::pipe()?;
        let (their_stderr, stderr) = pipe::pipe()?;
        Ok(Self {
            theirs: [
                their_stdin.into_blocking_fd()?,
                their_stdout.into_blocking_fd()?,
                their_stderr.into_blocking_fd()?,
            ],
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            resize: Box::new(|_| {}),
        })
    }

    /// A terminal: everything the command says comes out as its output.
    pub(crate) fn terminal(master: OwnedFd, slave: OwnedFd) -> io::Result<Self> {
        let (typed, shown) = terminal::halves(&master)?;
        Ok(Self {
            theirs: [slave.try_clone()?, slave.try_clone()?, slave],
            stdin: Box::new(typed),
            stdout: Box::new(shown),
            stderr: Box::new(tokio::io::empty()),
            resize: Box::new(move |size| terminal::resize(&master, size)),
        })
    }

    /// What the command is given.
    pub(crate) fn theirs(&self) -> [BorrowedFd<'_>; 3] {
        self.theirs.each_ref().map(AsFd::as_fd)
    }

    /// Keeps what is ours: while the other ends are open here, the command's output never ends.
    pub(crate) fn ours(self) -> (Box<dyn AsyncWrite + Send + Unpin>, [Box<dyn AsyncRead + Send + Unpin>; 2], Resize) {
        (self.stdin, [self.stdout, self.stderr], self.resize)
    }
}
