//! The data directory, which holds all state of the host.
//!
//! It belongs to one user. Every directory has mode 0700 and every file 0600, so no other user can read it.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use protocol::{ProblemCode, SessionId};

use crate::OwnerId;

/// The data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// A system call failed.
    #[error("cannot {doing} `{path}`")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The path is not a directory.
    #[error("`{0}` is not a directory")]
    NotADirectory(PathBuf),
    /// The directory belongs to another user.
    #[error("the data directory `{path}` belongs to user {owner}, but this process runs as user {user}")]
    OtherUser {
        /// The directory.
        path: PathBuf,
        /// User id of the directory.
        owner: u32,
        /// User id of this process.
        user: u32,
    },
    /// Other users can write to the directory.
    #[error("other users can write to the data directory `{path}` (mode {mode:03o})")]
    Exposed {
        /// The directory.
        path: PathBuf,
        /// The permission bits.
        mode: u32,
    },
    /// Another server uses the directory.
    #[error("another server uses the data directory `{path}`{}", by_process(*.pid))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Process id of the other server, if it could be read.
        pid: Option<u32>,
    },
}

fn by_process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl DataDirError {
    /// Returns the stable code for clients.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::InUse { .. } => ProblemCode::DataDirInUse,
            Self::Io { .. } => ProblemCode::Internal,
            Self::NotADirectory(_) | Self::OtherUser { .. } | Self::Exposed { .. } => ProblemCode::ConfigInvalid,
        }
    }

    /// Returns a function for `map_err` that adds the failed step and the file.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

/// The paths of a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir {
    root: PathBuf,
}

/// The lock of the only server of a data directory, until the value is dropped or the process ends.
#[derive(Debug)]
pub struct ServerLock {
    file: File,
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        // Closing is not enough: a child process that is being started holds a copy of the descriptor until its exec.
        let _ = self.file.unlock();
    }
}

impl DataDir {
    /// Opens the data directory at `root`, or creates it.
    ///
    /// Fails if it belongs to another user or other users can write to it.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, DataDirError> {
        let root = root.into();
        create(&root)?;
        let metadata = root.metadata().map_err(DataDirError::io("inspect", &root))?;
        if !metadata.is_dir() {
            return Err(DataDirError::NotADirectory(root));
        }
        let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
        if owner != user {
            return Err(DataDirError::OtherUser { path: root, owner, user });
        }
        let mode = metadata.mode() & 0o777;
        if mode & 0o022 != 0 {
            return Err(DataDirError::Exposed { path: root, mode });
        }
        let directory = Self { root };
        for subdirectory in [directory.journal_dir(), directory.bodies(), directory.owners()] {
            create(&subdirectory)?;
        }
        Ok(directory)
    }

    /// Returns the directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of the journals.
    pub fn journal_dir(&self) -> PathBuf {
        self.root.join("trajectory")
    }

    /// Returns the journal of `session`.
    pub fn journal(&self, session: &SessionId) -> PathBuf {
        self.journal_dir().join(format!("{session}.jsonl"))
    }

    /// Returns the file of [`crate::DiskReserve`].
    pub fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    /// Returns the file of the event feed.
    pub fn feed(&self) -> PathBuf {
        self.journal_dir().join("feed.idx")
    }

    /// Returns the change set that a session had before start number `epoch`, saved when its next sandbox was created.
    pub fn earlier_change_set(&self, session: &SessionId, epoch: u32) -> PathBuf {
        self.earlier_change_sets(session).join(epoch.to_string())
    }

    /// Returns the directory of all earlier change sets of a session.
    pub fn earlier_change_sets(&self, session: &SessionId) -> PathBuf {
        self.root.join("changes-earlier").join(session.as_str())
    }

    /// Returns the directory of tasks that were submitted over the session API.
    pub fn tasks(&self) -> PathBuf {
        self.root.join("tasks")
    }

    /// Returns the audit log of changes over the session API.
    pub fn audit_log(&self) -> PathBuf {
        self.root.join("audit.jsonl")
    }

    /// Returns the path for a damaged journal of a session; `number` counts the damaged journals before it.
    pub fn quarantined_journal(&self, session: &SessionId, number: u32) -> PathBuf {
        let suffix = if number == 0 { String::new() } else { format!(".{number}") };
        self.root.join("quarantine").join(format!("{session}{suffix}.jsonl"))
    }

    /// Returns the change set of a session.
    pub fn change_set(&self, session: &SessionId) -> PathBuf {
        self.root.join("changes").join(session.as_str())
    }

    /// Returns the directory with the recordings of the screen of an interactive session.
    pub fn screen_recordings(&self, session: &SessionId) -> PathBuf {
        self.root.join("screens").join(session.as_str())
    }

    /// Returns the recording of the screen since start number `epoch` of a session.
    pub fn screen_recording(&self, session: &SessionId, epoch: u32) -> PathBuf {
        self.screen_recordings(session).join(format!("{epoch}.cast"))
    }

    /// Returns the directory with the files of an imported session, except its journal.
    pub fn imported(&self, session: &SessionId) -> PathBuf {
        self.root.join("imported").join(session.as_str())
    }

    /// Returns the file that describes the workspace of `session` at its start.
    pub fn workspace_origin(&self, session: &SessionId) -> PathBuf {
        self.root.join("origins").join(format!("{session}.json"))
    }

    /// Returns the directory with the state that a session's agent needs after a restart.
    pub fn agent_state(&self, session: &SessionId) -> PathBuf {
        self.root.join("memory").join(session.as_str())
    }

    /// Returns the directory of the bodies of model calls.
    pub fn bodies(&self) -> PathBuf {
        self.root.join("bodies")
    }

    /// Returns the database of the sessions index.
    pub fn database(&self) -> PathBuf {
        self.root.join("viv.db")
    }

    /// Returns the file that grows whenever a gateway key changes.
    pub(crate) fn key_changes(&self) -> PathBuf {
        self.root.join("ledger.keys")
    }

    /// Returns the ledger's write-ahead log.
    pub(crate) fn write_ahead_log(&self) -> PathBuf {
        self.root.join("ledger.steps")
    }

    /// Returns the database of the ledger.
    pub fn ledger(&self) -> PathBuf {
        self.root.join("ledger.db")
    }

    /// Returns the socket of the server.
    pub fn socket(&self) -> PathBuf {
        self.root.join("viv.sock")
    }

    /// Returns the socket of a process that runs sessions.
    pub fn owner_socket(&self, owner: &OwnerId) -> PathBuf {
        self.owners().join(format!("{owner}.sock"))
    }

    /// Returns the directory with the locks of processes that run sessions.
    pub fn owners(&self) -> PathBuf {
        self.root.join("owners")
    }

    /// Makes this process the only server of the directory. Fails if another server uses it.
    pub fn lock_server(&self) -> Result<ServerLock, DataDirError> {
        let path = self.root.join("server.lock");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = opened.map_err(DataDirError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DataDirError::InUse { path: self.root.clone(), pid: read_pid(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(DataDirError::io("lock", &path)(error)),
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(DataDirError::io("write", &path))?;
        Ok(ServerLock { file })
    }
}

/// Creates a directory that only its user can enter. An existing directory is not changed.
fn create(path: &Path) -> Result<(), DataDirError> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(DataDirError::NotADirectory(path.to_owned())),
        Err(error) => Err(DataDirError::io("create", path)(error)),
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
