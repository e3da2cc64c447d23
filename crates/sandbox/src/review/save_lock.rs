//! One writer at a time for a directory of saved changes, among all processes.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// Held while the directory is written; the kernel lets go when the holder dies.
#[derive(Debug)]
pub(crate) struct SaveLock(File);

impl SaveLock {
    /// Takes the lock or fails with `ResourceBusy`: a caller that waited would find another list than it read.
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
        // Said, and not left to the closing: a process that another thread starts at this moment has the file open
        // too until it runs its own program, and the lock would last as long.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
