//! Files created in advance for the journals of new sessions.
//!
//! On some file systems, creating a file takes longer than the rest of starting a session. A file in the pool has no
//! name until a session takes it, so unused files disappear with the process.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use base::lock;
use rustix::fs::{AtFlags, CWD, OFlags, linkat};

/// The most files in the pool. Each file holds a descriptor.
const MAX_FILES: usize = 32;
/// The pool is filled again when it has fewer files.
const MIN_FILES: usize = 24;

/// Unnamed files on the file system of one directory.
#[derive(Debug)]
pub struct FilePool {
    directory: PathBuf,
    files: Mutex<Vec<File>>,
    is_filling: AtomicBool,
}

impl FilePool {
    /// Returns an empty pool for files in `directory`.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, files: Mutex::default(), is_filling: AtomicBool::new(false) }
    }

    /// Returns whether the caller should call [`Self::fill`]. Only one caller gets `true` until the pool is filled.
    pub fn should_fill(&self) -> bool {
        lock(&self.files).len() < MIN_FILES && !self.is_filling.swap(true, Ordering::SeqCst)
    }

    /// Creates the missing files. On a file system without unnamed files, the pool stays empty.
    pub fn fill(&self) {
        while lock(&self.files).len() < MAX_FILES
            && let Some(file) = self.create()
        {
            lock(&self.files).push(file);
        }
        self.is_filling.store(false, Ordering::SeqCst);
    }

    /// Gives a file of the pool the name `path` and returns it locked for its writer. Returns `None` if the pool is
    /// empty or `path` exists.
    pub(super) fn take(&self, path: &Path) -> Option<File> {
        let file = lock(&self.files).pop()?;
        file.try_lock().ok()?;
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW).ok()?;
        Some(file)
    }

    fn create(&self) -> Option<File> {
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
    fn taken_file_is_named_once_and_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let pool = FilePool::new(directory.path().to_owned());
        assert!(pool.take(&directory.path().join("none")).is_none());
        assert!(pool.should_fill());
        assert!(!pool.should_fill(), "a second caller was told to fill");
        pool.fill();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a file in the pool has a name");

        let path = directory.path().join("journal");
        let mut file = pool.take(&path).unwrap();
        file.write_all(b"one\n").unwrap();
        assert!(File::open(&path).unwrap().try_lock().is_err(), "another process could write");
        assert!(pool.take(&path).is_none(), "an existing file was replaced");
        assert_eq!(std::fs::read(&path).unwrap(), b"one\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn fill_replaces_taken_files() {
        let directory = tempfile::tempdir().unwrap();
        let pool = FilePool::new(directory.path().to_owned());
        pool.fill();
        for number in 0..=MAX_FILES - MIN_FILES {
            assert!(pool.take(&directory.path().join(number.to_string())).is_some());
        }
        assert!(pool.should_fill());
        pool.fill();
        assert_eq!(lock(&pool.files).len(), MAX_FILES);
        assert!(!pool.should_fill());
    }
}
