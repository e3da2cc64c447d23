//! Owners of sessions: processes that hold a lock file for as long as they live.
//!
//! The kernel releases the lock when the process ends, also after kill -9. So a session whose owner's lock is free has
//! lost its host; no timeouts or process ids are needed to find out.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use crate::{DataDir, DataDirError, lock_file};

/// The unique id of one process that runs sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// Returns the id as written in the database and in the name of the lock file.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn from_database(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// This process as an owner, until the value is dropped or the process ends.
#[derive(Debug)]
pub struct ProcessOwner {
    id: OwnerId,
    path: PathBuf,
    _lock: File,
}

impl ProcessOwner {
    /// Creates a new lock in the data directory, and removes the locks of dead owners.
    pub fn claim(directory: &DataDir) -> Result<Self, DataDirError> {
        let (owners, id) = (directory.owners(), OwnerId(Uuid::now_v7().to_string().into()));
        lock_file::remove_abandoned(&owners, "lock");
        remove_abandoned_sockets(&owners);
        let path = lock_path(&owners, &id);
        let lock = lock_file::create(&path).map_err(DataDirError::io("lock", &path))?;
        Ok(Self { id, path, _lock: lock })
    }

    /// Returns the id, to be recorded in everything that this process owns.
    pub fn id(&self) -> &OwnerId {
        &self.id
    }
}

impl Drop for ProcessOwner {
    fn drop(&mut self) {
        // A missing lock file counts as free, and so does one that stays here.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns whether the process that claimed `id` is alive.
pub(crate) fn is_alive(owners: &Path, id: &OwnerId) -> io::Result<bool> {
    let file = match File::open(lock_path(owners, id)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // A shared lock, so that two processes that check at once do not mistake each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the sockets of dead owners. A socket is created after its owner's lock, so without the lock it is unused.
fn remove_abandoned_sockets(owners: &Path) {
    let paths = std::fs::read_dir(owners).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in paths.filter(|path| path.extension().is_some_and(|found| found == "sock")) {
        if !path.with_extension("lock").exists() {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn lock_path(owners: &Path, id: &OwnerId) -> PathBuf {
    owners.join(format!("{id}.lock"))
}
