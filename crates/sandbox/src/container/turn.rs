//! One new container at a time for an engine that cannot make two at once.
//!
//! Podman of an ordinary user asks a library for the further numbers that user may give out, and the library is for
//! one thread: asked by two, it answers that there are none, or takes the engine down with it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Making a container takes tens of milliseconds.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Held while a container is made, among all processes of the host; the kernel lets go when the holder dies.
#[derive(Debug)]
pub(super) struct Turn(File);

impl Turn {
    /// Comes when nobody else makes a container with the engine behind `socket`.
    pub(super) async fn wait(socket: &Path) -> io::Result<Self> {
        // The directory, for a socket cannot be locked.
        let directory = File::open(socket.parent().unwrap_or(Path::new(".")))?;
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(directory)),
                Err(Errno::WOULDBLOCK | Errno::INTR) => tokio::time::sleep(BETWEEN_LOOKS).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Said, and not left to the closing: a process that another thread starts at this moment has the directory
        // open too until it runs its own program, and the lock would last as long.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_container_waits_until_the_first_is_made() {
        let runtime = tempfile::tempdir().expect("directory");
        let socket = runtime.path().join("podman.sock");
        let first = Turn::wait(&socket).await.expect("turn");
        let second = tokio::time::timeout(BETWEEN_LOOKS * 3, Turn::wait(&socket)).await;
        assert!(second.is_err(), "two at once");
        drop(first);
        Turn::wait(&socket).await.expect("turn");
    }

    #[tokio::test]
    async fn a_socket_nowhere_is_told() {
        let told = Turn::wait(Path::new("/no/such/place/podman.sock")).await.expect_err("a turn");
        assert_eq!(told.kind(), io::ErrorKind::NotFound);
    }
}
