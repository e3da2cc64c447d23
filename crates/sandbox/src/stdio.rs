//! The standard streams of a command: the ends that it gets, and the ends that stay on the host.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use jail::HostUser;
use rustix::process::{Gid, Uid};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use crate::{WindowSize, terminal};

/// A function that resizes a command's terminal.
pub(crate) type Resize = Box<dyn Fn(WindowSize) + Send + Sync>;

/// Both ends of a command's standard streams.
pub(crate) struct CommandStdio {
    /// The command's ends of standard input, output and error.
    command_ends: [OwnedFd; 3],
    stdin: Box<dyn AsyncWrite + Send + Unpin>,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    stderr: Box<dyn AsyncRead + Send + Unpin>,
    resize: Resize,
}

impl CommandStdio {
    /// Makes three pipes. They belong to `owner`, so that a command can open its own again, as `/dev/stderr`.
    pub(crate) fn pipes(owner: HostUser) -> io::Result<Self> {
        let (stdin, their_stdin) = pipe::pipe()?;
        let (their_stdout, stdout) = pipe::pipe()?;
        let (their_stderr, stderr) = pipe::pipe()?;
        let command_ends =
            [their_stdin.into_blocking_fd()?, their_stdout.into_blocking_fd()?, their_stderr.into_blocking_fd()?];
        if owner.differs_from_caller() {
            let (uid, gid) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
            for end in &command_ends {
                rustix::fs::fchown(end, Some(uid), Some(gid))?;
            }
        }
        Ok(Self {
            command_ends,
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            resize: Box::new(|_| {}),
        })
    }

    /// Makes three pairs of sockets, each of which carries data in one direction only. A socket cannot be opened again
    /// through `/proc/PID/fd`.
    pub(crate) fn sockets() -> io::Result<Self> {
        let pair = |unused: Shutdown| -> io::Result<(OwnedFd, UnixStream)> {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
            ours.shutdown(unused)?;
            ours.set_nonblocking(true)?;
            Ok((theirs.into(), UnixStream::from_std(ours)?))
        };
        let (their_stdin, stdin) = pair(Shutdown::Read)?;
        let (their_stdout, stdout) = pair(Shutdown::Write)?;
        let (their_stderr, stderr) = pair(Shutdown::Write)?;
        Ok(Self {
            command_ends: [their_stdin, their_stdout, their_stderr],
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            resize: Box::new(|_| {}),
        })
    }

    /// Uses a terminal. All output of the command comes out as its standard output.
    pub(crate) fn terminal(master: OwnedFd, slave: OwnedFd) -> io::Result<Self> {
        let (input, output) = terminal::halves(&master)?;
        Ok(Self {
            command_ends: [slave.try_clone()?, slave.try_clone()?, slave],
            stdin: Box::new(input),
            stdout: Box::new(output),
            stderr: Box::new(tokio::io::empty()),
            resize: Box::new(move |size| terminal::resize(&master, size)),
        })
    }

    /// Returns the command's ends.
    pub(crate) fn command_ends(&self) -> [BorrowedFd<'_>; 3] {
        self.command_ends.each_ref().map(AsFd::as_fd)
    }

    /// Returns the host's ends and closes the command's. While those are open here, the command's output never ends.
    pub(crate) fn into_host_ends(
        self,
    ) -> (Box<dyn AsyncWrite + Send + Unpin>, [Box<dyn AsyncRead + Send + Unpin>; 2], Resize) {
        (self.stdin, [self.stdout, self.stderr], self.resize)
    }
}
