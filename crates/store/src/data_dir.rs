//! The one directory all state lives in.
//!
//! It belongs to one user, and nobody else can look into it: every directory is 0700, every file 0600.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use protocol::{ProblemCode, SessionId};

use crate::OwnerId;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The disk said no.
    #[error("cannot {doing} `{path}`")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What stands there is no directory.
    #[error("`{0}` is not a directory")]
    NotADirectory(PathBuf),
    /// Two users never meet.
    #[error("the data directory `{path}` belongs to user {owner}, this is user {user}")]
    OtherUser {
        /// The directory.
        path: PathBuf,
        /// User id of the directory.
        owner: u32,
        /// User id of this process.
        user: u32,
    },
    /// Others could put files of theirs in it.
    #[error("the data directory `{path}` can be written by others (mode {mode:03o})")]
    Exposed {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another server has it.
    #[error("another server has the data directory `{path}`{}", by_process(*.pid))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Process id of the other server, where it could be read.
        pid: Option<u32>,
    },
}

fn by_process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl DataDirError {
    /// Stable identifier for clients.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::InUse { .. } => ProblemCode::DataDirInUse,
            Self::Io { .. } => ProblemCode::Internal,
            Self::NotADirectory(_) | Self::OtherUser { .. } | Self::Exposed { .. } => ProblemCode::ConfigInvalid,
        }
    }

    /// For `map_err`: names the step and the file.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

/// Where everything is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir {
    root: PathBuf,
}

/// Held by the one server of a data directory; let go when it is dropped or its process ends.
#[derive(Debug)]
pub struct ServerLock {
    file: File,
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        // Closing alone would leave the lock to a child that is being started just now, until its exec.
        let _ = self.file.unlock();
    }
}

impl DataDir {
    /// Opens the data directory at `root`, or makes it.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, DataDirError> {
        let root = root.into();
        make(&root)?;
        let metadata = root.metadata().map_err(DataDirError::io("look at", &root))?;
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
        for part in [directory.journal_dir(), directory.bodies(), directory.owners()] {
            make(&part)?;
        }
        Ok(directory)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the journals are.
    pub fn journal_dir(&self) -> PathBuf {
        self.root.join("trajectory")
    }

    /// The journal of `session`.
    pub fn journal(&self, session: &SessionId) -> PathBuf {
        self.journal_dir().join(format!("{session}.jsonl"))
    }

    /// Room that is kept for what makes room.
    pub fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    /// The order in which the events of all sessions became known.
    pub fn feed(&self) -> PathBuf {
        self.journal_dir().join("feed.idx")
    }

    /// What a session had changed before start number `epoch`, put aside when its next sandbox was made.
    pub fn earlier_change_set(&self, session: &SessionId, epoch: u32) -> PathBuf {
        self.earlier_change_sets(session).join(epoch.to_string())
    }

    /// Everything of a session that was put aside.
    pub fn earlier_change_sets(&self, session: &SessionId) -> PathBuf {
        self.root.join("changes-earlier").join(session.as_str())
    }

    /// What is known of tasks that were handed in over the session API.
    pub fn tasks(&self) -> PathBuf {
        self.root.join("tasks")
    }

    /// Who changed what over the session API.
    pub fn audit_log(&self) -> PathBuf {
        self.root.join("audit.jsonl")
    }

    /// Where the journal of a session is put that is not what was written; `number` of them were there before.
    pub fn quarantined_journal(&self, session: &SessionId, number: u32) -> PathBuf {
        let again = if number == 0 { String::new() } else { format!(".{number}") };
        self.root.join("quarantine").join(format!("{session}{again}.jsonl"))
    }

    /// What a session changed in its workspace.
    pub fn change_set(&self, session: &SessionId) -> PathBuf {
        self.root.join("changes").join(session.as_str())
    }

    /// What is kept of a session that was taken in from a bundle, beside its journal.
    pub fn imported(&self, session: &SessionId) -> PathBuf {
        self.root.join("imported").join(session.as_str())
    }

    /// How the workspace of `session` was when it began.
    pub fn workspace_origin(&self, session: &SessionId) -> PathBuf {
        self.root.join("origins").join(format!("{session}.json"))
    }

    /// What a session's agent needs to go on after a restart.
    pub fn agent_state(&self, session: &SessionId) -> PathBuf {
        self.root.join("memory").join(session.as_str())
    }

    /// Where the bodies of model calls are.
    pub fn bodies(&self) -> PathBuf {
        self.root.join("bodies")
    }

    /// The sessions index.
    pub fn database(&self) -> PathBuf {
        self.root.join("viv.db")
    }

    /// Tells that a key was made or revoked.
    pub(crate) fn key_changes(&self) -> PathBuf {
        self.root.join("ledger.keys")
    }

    /// The steps of calls that may not be in the ledger yet.
    pub(crate) fn write_ahead_log(&self) -> PathBuf {
        self.root.join("ledger.steps")
    }

    /// The ledger.
    pub fn ledger(&self) -> PathBuf {
        self.root.join("ledger.db")
    }

    /// The socket of the server of this directory.
    pub fn socket(&self) -> PathBuf {
        self.root.join("viv.sock")
    }

    /// The socket of one process that runs sessions.
    pub fn owner_socket(&self, owner: &OwnerId) -> PathBuf {
        self.owners().join(format!("{owner}.sock"))
    }

    /// Locks of the processes that run sessions.
    pub fn owners(&self) -> PathBuf {
        self.root.join("owners")
    }

    /// Makes this process the one server of the directory.
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
        let note = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        note.map_err(DataDirError::io("write", &path))?;
        Ok(ServerLock { file })
    }
}

/// Makes a directory that only its user can enter; one that is there stays as it is.
fn make(path: &Path) -> Result<(), DataDirError> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(DataDirError::NotADirectory(path.to_owned())),
        Err(error) => Err(DataDirError::io("make", path)(error)),
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
