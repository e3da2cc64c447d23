//! A lock for the creation of containers by an engine that cannot create two at once.
//!
//! A rootless Podman reads the user's subordinate ids with a library that is not thread-safe. Two concurrent calls report
//! that there are no ids, or crash the engine.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The pause between attempts. Creating a container takes tens of milliseconds.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// The lock, shared by all processes of the host. The kernel releases it when its holder dies.
#[derive(Debug)]
pub(super) struct CreationLock(File);

impl CreationLock {
    /// Waits until no other process creates a container with the engine behind `socket`.
    pub(super) async fn acquire(socket: &Path) -> io::Result<Self> {
        // The directory is locked, because a socket cannot be.
        let directory = File::open(socket.parent().unwrap_or(Path::new(".")))?;
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(directory)),
                Err(Errno::WOULDBLOCK | Errno::INTR) => tokio::time::sleep(RETRY_PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for CreationLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread forks now has a copy of the descriptor until it
        // executes its program, and would hold the lock until then.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn second_container_waits_for_the_lock() {
        let runtime = tempfile::tempdir().expect("directory");
        let socket = runtime.path().join("podman.sock");
        let first = CreationLock::acquire(&socket).await.expect("lock");
        let second = tokio::time::timeout(RETRY_PAUSE * 3, CreationLock::acquire(&socket)).await;
        assert!(second.is_err(), "two processes hold the lock");
        drop(first);
        CreationLock::acquire(&socket).await.expect("lock");
    }

    #[tokio::test]
    async fn missing_socket_is_an_error() {
        let error = CreationLock::acquire(Path::new("/no/such/place/podman.sock")).await.expect_err("a lock");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
