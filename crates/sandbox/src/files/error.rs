//! Why something could not be done to a file.

use std::io;
use std::path::{Path, PathBuf};

use policy::RuleRef;
use protocol::ProblemCode;
use rustix::io::Errno;

/// Why something could not be done to a file. Each has a code that never changes.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The path, or a link on the way, leads elsewhere.
    #[error("`{}` is not in the workspace", .0.display())]
    Outside(PathBuf),
    /// There is nothing.
    #[error("`{}` does not exist", .0.display())]
    NotFound(PathBuf),
    /// There is something already.
    #[error("`{}` exists", .0.display())]
    Exists(PathBuf),
    /// There is something of another kind.
    #[error("`{}` is not {wanted}", .path.display())]
    WrongKind {
        /// Where.
        path: PathBuf,
        /// What it should have been, with its article.
        wanted: &'static str,
    },
    /// A directory that was to be empty is not.
    #[error("the directory `{}` is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// A rule of the policy says no.
    #[error("the policy denies to {doing} `{}`: {} ({})", .path.display(), .rule.text, .rule.location())]
    Denied {
        /// `read` or `change`.
        doing: &'static str,
        /// What.
        path: PathBuf,
        /// By which rule.
        rule: Box<RuleRef>,
    },
    /// The user inside may not either.
    #[error("the user inside may not do this to `{}`", .0.display())]
    Permission(PathBuf),
    /// Links lead to links without end.
    #[error("`{}` leads through too many links", .0.display())]
    LinkLoop(PathBuf),
    /// More than the caller takes, or nested deeper than can be reached.
    #[error("`{}` is too large: {limit}", .path.display())]
    TooLarge {
        /// What.
        path: PathBuf,
        /// What is allowed.
        limit: String,
    },
    /// The sandbox's disk limit is reached.
    #[error("the workspace is full")]
    Full(#[source] io::Error),
    /// Somebody inside holds on to it.
    #[error("`{}` is in use", .0.display())]
    Busy(PathBuf),
    /// An archive holds what is not unpacked, or is none.
    #[error("the archive is refused at `{}`: {reason}", .entry.display())]
    Archive {
        /// The entry.
        entry: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The content could not be taken from the caller.
    #[error("the content broke off")]
    Content(#[source] io::Error),
    /// The system said something else.
    #[error("cannot reach `{}`", .path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The sandbox was destroyed.
    #[error("the sandbox is gone")]
    Gone,
}

impl FilesError {
    /// Stable identifier for clients, listed in `docs/errors.md`.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Outside(_) | Self::LinkLoop(_) => ProblemCode::FileOutsideWorkspace,
            Self::NotFound(_) => ProblemCode::FileNotFound,
            Self::Exists(_) => ProblemCode::FileExists,
            Self::WrongKind { .. } | Self::NotEmpty(_) => ProblemCode::FileWrongKind,
            Self::Denied { .. } => ProblemCode::PolicyDenied,
            Self::Permission(_) => ProblemCode::FilePermissionDenied,
            Self::TooLarge { .. } => ProblemCode::FileTooLarge,
            Self::Full(_) => ProblemCode::WorkspaceFull,
            Self::Busy(_) => ProblemCode::FileBusy,
            Self::Archive { .. } => ProblemCode::ArchiveRefused,
            Self::Content(_) => ProblemCode::InvalidRequest,
            Self::Io { .. } => ProblemCode::FileUnavailable,
            Self::Gone => ProblemCode::SandboxGone,
        }
    }

    /// What the system said about `path`, as one of the above.
    pub(crate) fn of(path: &Path, error: impl Into<io::Error>) -> Self {
        let source: io::Error = error.into();
        let path = path.to_owned();
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => Self::NotFound(path),
            Some(Errno::EXIST) => Self::Exists(path),
            Some(Errno::NOTEMPTY) => Self::NotEmpty(path),
            Some(Errno::NOTDIR) => Self::WrongKind { path, wanted: "a directory" },
            Some(Errno::ISDIR | Errno::NXIO | Errno::NODEV) => Self::WrongKind { path, wanted: "a regular file" },
            // A mount on the way, or a link that leaves: nothing we follow.
            Some(Errno::XDEV) => Self::Outside(path),
            Some(Errno::LOOP) => Self::LinkLoop(path),
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Self::Permission(path),
            Some(Errno::NOSPC | Errno::DQUOT) => Self::Full(source),
            Some(Errno::AGAIN | Errno::BUSY | Errno::TXTBSY) => Self::Busy(path),
            Some(Errno::NAMETOOLONG) => Self::TooLarge { path, limit: "its name is too long".to_owned() },
            _ => Self::Io { path, source },
        }
    }
}

/// Says which path the system spoke of.
pub(crate) trait About<T> {
    fn about(self, path: &Path) -> Result<T, FilesError>;
}

impl<T, E: Into<io::Error>> About<T> for Result<T, E> {
    fn about(self, path: &Path) -> Result<T, FilesError> {
        self.map_err(|error| FilesError::of(path, error))
    }
}
