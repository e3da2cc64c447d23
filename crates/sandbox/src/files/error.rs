//! Errors of file operations in a workspace.

use std::io;
use std::path::{Path, PathBuf};

use policy::RuleRef;
use protocol::ProblemCode;
use rustix::io::Errno;

/// An error of a file operation. Each has a stable code.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The path, or a link in it, leads out of the workspace.
    #[error("`{}` is not in the workspace", .0.display())]
    Outside(PathBuf),
    /// The path does not exist.
    #[error("`{}` does not exist", .0.display())]
    NotFound(PathBuf),
    /// The path exists already.
    #[error("`{}` already exists", .0.display())]
    Exists(PathBuf),
    /// The path has another file type.
    #[error("`{}` is not {wanted}", .path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// The expected type, with its article.
        wanted: &'static str,
    },
    /// A directory must be empty and is not.
    #[error("the directory `{}` is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// A rule of the policy denies the operation.
    #[error("cannot {doing} `{}`: denied by the policy rule {} ({})", .path.display(), .rule.text, .rule.location())]
    Denied {
        /// `read` or `change`.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The rule that denies it.
        rule: Box<RuleRef>,
    },
    /// The sandbox user does not have the permission.
    #[error("the sandbox user has no permission for `{}`", .0.display())]
    Permission(PathBuf),
    /// The path passes through too many links.
    #[error("`{}` passes through too many links", .0.display())]
    LinkLoop(PathBuf),
    /// The content is over a limit, or the path is too long.
    #[error("`{}` is too large: {limit}", .path.display())]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// The limit, in a clause.
        limit: String,
    },
    /// The disk limit of the sandbox is reached.
    #[error("the workspace is full (proc.disk)")]
    Full(#[source] io::Error),
    /// A process inside uses the file.
    #[error("`{}` is in use", .0.display())]
    Busy(PathBuf),
    /// An archive has an entry that is not allowed, or cannot be read.
    #[error("the archive is refused at `{}`: {reason}", .entry.display())]
    Archive {
        /// The entry.
        entry: PathBuf,
        /// Why it is refused.
        reason: String,
    },
    /// Reading the content failed before its end.
    #[error("cannot read the content to its end")]
    Content(#[source] io::Error),
    /// Any other error of the system.
    #[error("cannot access `{}`", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The sandbox was destroyed.
    #[error("the sandbox has ended")]
    Gone,
}

impl FilesError {
    /// Returns the stable error code, listed in `docs/errors.md`.
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

    /// Converts an error of the system about `path`.
    pub(crate) fn of(path: &Path, error: impl Into<io::Error>) -> Self {
        let source: io::Error = error.into();
        let path = path.to_owned();
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => Self::NotFound(path),
            Some(Errno::EXIST) => Self::Exists(path),
            Some(Errno::NOTEMPTY) => Self::NotEmpty(path),
            Some(Errno::NOTDIR) => Self::WrongKind { path, wanted: "a directory" },
            Some(Errno::ISDIR | Errno::NXIO | Errno::NODEV) => Self::WrongKind { path, wanted: "a regular file" },
            // `XDEV`: the path passes through a mount, or a link leaves the workspace.
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

/// Adds the path to an error of the system.
pub(crate) trait AtPath<T> {
    fn at_path(self, path: &Path) -> Result<T, FilesError>;
}

impl<T, E: Into<io::Error>> AtPath<T> for Result<T, E> {
    fn at_path(self, path: &Path) -> Result<T, FilesError> {
        self.map_err(|error| FilesError::of(path, error))
    }
}
