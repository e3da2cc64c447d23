//! Disk space that is allocated in advance, so that a session can be deleted on a full disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};

/// Enough for the sessions index to delete a session.
const BYTES: u64 = 256 << 10;

/// A file that occupies disk space until the space is needed.
#[derive(Debug)]
pub struct DiskReserve(PathBuf);

impl DiskReserve {
    /// Allocates the reserve at `path`. If the disk is full now, the next use tries again.
    pub fn new(path: PathBuf) -> Self {
        let reserve = Self(path);
        reserve.fill();
        reserve
    }

    /// Frees the reserved space, runs `work`, and allocates the reserve again.
    pub fn release_during<T>(&self, work: impl FnOnce() -> T) -> T {
        // The file is missing if the reserve was used before and could not be allocated again.
        let _ = std::fs::remove_file(&self.0);
        let result = work();
        self.fill();
        result
    }

    fn fill(&self) {
        if self.allocate().is_err() {
            // The disk is full. The next use runs without a reserve.
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn allocate(&self) -> io::Result<()> {
        let file: File = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.0)?;
        Ok(fallocate(file, FallocateFlags::empty(), 0, BYTES)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_freed_during_work_and_allocated_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reserve");
        let reserve = DiskReserve::new(path.clone());
        assert_eq!(path.metadata().unwrap().len(), BYTES);
        assert!(reserve.release_during(|| !path.exists()));
        assert_eq!(path.metadata().unwrap().len(), BYTES);
    }
}
