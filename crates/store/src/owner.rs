//! Who runs a session: a process that holds a lock for as long as it lives.
//!
//! The kernel lets go of the lock when the process ends, however it ends. So a session whose owner's
//! lock can be taken has lost its host, and nobody has to guess from times or process ids.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use crate::{DataDir, DataDirError, lock_file};

/// Names one process that runs sessions. Never given twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// As it stands in the database and in the lock's name.
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

/// This process as an owner; it owns until it is dropped or its process ends.
#[derive(Debug)]
pub struct ProcessOwner {
    id: OwnerId,
    path: PathBuf,
    _lock: File,
}

impl ProcessOwner {
    /// Takes a new lock in the data directory, and clears away those that dead owners left.
    pub fn claim(directory: &DataDir) -> Result<Self, DataDirError> {
        let (owners, id) = (directory.owners(), OwnerId(Uuid::now_v7().to_string().into()));
        lock_file::sweep(&owners, "lock");
        sweep_sockets(&owners);
        let path = lock_path(&owners, &id);
        let lock = lock_file::create(&path).map_err(DataDirError::io("lock", &path))?;
        Ok(Self { id, path, _lock: lock })
    }

    /// Its name, to be written into what it owns.
    pub fn id(&self) -> &OwnerId {
        &self.id
    }
}

impl Drop for ProcessOwner {
    fn drop(&mut self) {
        // A lock that is not there counts as free, so leaving the file behind would only be untidy.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the process that claimed `id` still lives.
pub(crate) fn is_alive(owners: &Path, id: &OwnerId) -> io::Result<bool> {
    let file = match File::open(lock_path(owners, id)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // Shared, so that two who ask at once do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes sockets that nobody listens on: a socket is made after its owner's lock, and the lock is gone.
fn sweep_sockets(owners: &Path) {
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
