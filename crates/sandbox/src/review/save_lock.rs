//! The lock of a directory of saved changes: one writer at a time, among all processes.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// Held while the directory is written. The kernel releases it when its holder dies.
#[derive(Debug)]
pub(crate) struct SaveLock(File);

impl SaveLock {
    /// Takes the lock, or fails with `ResourceBusy`. It does not wait, because the saved changes would differ afterwards.
    pub(crate) fn take(directory: &Path) -> io::Result<Self> {
        let file = File::options().create(true).write(true).truncate(false).open(directory.join("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let why = "these changes are being saved or applied by another process";
                Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for SaveLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread forks now has a copy of the descriptor until it
        // executes its program, and would hold the lock until then.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
