//! Files for the journals of sessions to come, made while nobody waits for one.
//!
//! Some file systems need longer to find room for a new file than a new session needs for everything else. A spare
//! has no name before it is taken: those that nobody takes are gone with the process.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use base::lock;
use rustix::fs::{AtFlags, CWD, OFlags, linkat};

/// So many wait at most, each of them with a descriptor.
const MOST: usize = 32;
/// When there are fewer, more are made.
const FEW: usize = 24;

/// Files without a name on the file system of one directory.
#[derive(Debug)]
pub struct FilePool {
    directory: PathBuf,
    files: Mutex<Vec<File>>,
    is_filling: AtomicBool,
}

impl FilePool {
    /// None yet, for journals in `directory`.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, files: Mutex::default(), is_filling: AtomicBool::new(false) }
    }

    /// Whether it is time for [`Self::fill`]. Who hears so is the only one until it was done.
    pub fn should_fill(&self) -> bool {
        lock(&self.files).len() < FEW && !self.is_filling.swap(true, Ordering::SeqCst)
    }

    /// Makes as many as are missing. Where the file system knows no files without a name, there are none.
    pub fn fill(&self) {
        while lock(&self.files).len() < MOST
            && let Some(file) = self.make()
        {
            lock(&self.files).push(file);
        }
        self.is_filling.store(false, Ordering::SeqCst);
    }

    /// Gives a spare the name `path`, locked for its one writer. None if there is no spare, or a file of that name.
    pub(super) fn take(&self, path: &Path) -> Option<File> {
        let file = lock(&self.files).pop()?;
        file.try_lock().ok()?;
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW).ok()?;
        Some(file)
    }

    fn make(&self) -> Option<File> {
        let unnamed = i32::try_from(OFlags::TMPFILE.bits()).ok()?;
        OpenOptions::new().read(true).append(true).mode(0o600).custom_flags(unnamed).open(&self.directory).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_spare_is_named_once_and_over_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let spares = FilePool::new(directory.path().to_owned());
        assert!(spares.take(&directory.path().join("none")).is_none());
        assert!(spares.should_fill());
        assert!(!spares.should_fill(), "two fill at once");
        spares.fill();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a spare has a name");

        let path = directory.path().join("journal");
        let mut file = spares.take(&path).unwrap();
        file.write_all(b"one\n").unwrap();
        assert!(File::open(&path).unwrap().try_lock().is_err(), "somebody else could write");
        assert!(spares.take(&path).is_none(), "a file that was there is another one now");
        assert_eq!(std::fs::read(&path).unwrap(), b"one\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn those_that_were_taken_are_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let spares = FilePool::new(directory.path().to_owned());
        spares.fill();
        for number in 0..=MOST - FEW {
            assert!(spares.take(&directory.path().join(number.to_string())).is_some());
        }
        assert!(spares.should_fill());
        spares.fill();
        assert_eq!(lock(&spares.files).len(), MOST);
        assert!(!spares.should_fill());
    }
}
