//! Room on the disk that is kept for what makes room: to delete something takes a little, too.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};

/// Enough for the list of sessions to lose one.
const BYTES: u64 = 256 << 10;

/// A file that takes up room until it is needed.
#[derive(Debug)]
pub struct DiskReserve(PathBuf);

impl DiskReserve {
    /// Keeps room at `path`; where there is none now it is kept later.
    pub fn new(path: PathBuf) -> Self {
        let reserve = Self(path);
        reserve.fill();
        reserve
    }

    /// Does `work` with that room at hand.
    pub fn release_during<T>(&self, work: impl FnOnce() -> T) -> T {
        // One that is not there was used before, and could not be filled again.
        let _ = std::fs::remove_file(&self.0);
        let done = work();
        self.fill();
        done
    }

    fn fill(&self) {
        if self.allocate().is_err() {
            // There is no room to be kept; who needs it next fails as if there were no reserve.
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
    fn the_room_is_there_while_it_is_lent_and_taken_again_afterwards() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("reserve");
        let reserve = DiskReserve::new(path.clone());
        assert_eq!(path.metadata().unwrap().len(), BYTES);
        assert!(reserve.release_during(|| !path.exists()));
        assert_eq!(path.metadata().unwrap().len(), BYTES);
    }
}
