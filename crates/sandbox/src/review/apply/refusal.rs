//! Why a change is not applied.

use std::fmt;
use std::path::PathBuf;

use policy::RuleRef;
use serde::Serialize;

use crate::review::json_path::{self, quoted};
use crate::review::render::unsaved;
use crate::review::{FileStamp, UnsavedReason};

/// One path that must not be applied, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedPath {
    /// Relative to the workspace.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// What stands against it.
    #[serde(flatten)]
    pub reason: RefusalReason,
}

/// What stands against a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum RefusalReason {
    /// The policy denies writing it.
    Denied {
        /// The rule that does.
        rule: RuleRef,
    },
    /// The policy denies writing another name that a link gives it.
    DeniedThroughLink {
        /// The other name.
        #[serde(with = "json_path")]
        name: PathBuf,
        /// The rule that denies it.
        rule: RuleRef,
    },
    /// It is a FIFO, socket or device, or replaces one.
    SpecialFile,
    /// A file with a setuid, setgid or sticky bit.
    SpecialMode {
        /// Its permission bits.
        mode: u32,
    },
    /// A link that leads, or may lead, out of the workspace.
    LinkLeaves {
        /// Where it points.
        #[serde(with = "json_path")]
        target: PathBuf,
    },
    /// A `.git` that is no directory: it sends git to settings and hooks elsewhere.
    GitElsewhere,
    /// It belongs to what git takes for a repository, settings and hooks included, by whatever name.
    BareRepository {
        /// Where that lies, relative to the workspace.
        #[serde(with = "json_path")]
        directory: PathBuf,
    },
    /// A directory on the way to it is a link on the host.
    ThroughLink,
    /// It lies on another file system than the workspace.
    OtherFileSystem,
    /// It was not kept.
    NotKept {
        /// Why not.
        why: UnsavedReason,
    },
    /// The host's own file is not the one the sandbox was made over.
    Conflict(HostDifference),
    /// There is no such change.
    NotChanged,
    /// Its path names no place inside the workspace.
    BadPath,
}

/// How the host differs from what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "difference", rename_all = "snake_case")]
pub enum HostDifference {
    /// It changed since the sandbox was made.
    Changed,
    /// It is there now.
    Appeared,
    /// It is gone.
    Gone,
    /// A directory that is to be removed holds something else now.
    NotEmpty,
}

impl HostDifference {
    /// The difference between what was seen and what is there now.
    pub(crate) fn between(base: Option<&FileStamp>, now: Option<&FileStamp>) -> Option<Self> {
        match (base, now) {
            (None, None) => None,
            (None, Some(_)) => Some(Self::Appeared),
            (Some(_), None) => Some(Self::Gone),
            (Some(base), Some(now)) => (!base.is_untouched(now)).then_some(Self::Changed),
        }
    }
}

impl fmt::Display for RefusedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", quoted(&self.path), self.reason)
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { rule } => write!(f, "denied by {rule}"),
            Self::DeniedThroughLink { name, rule } => {
                write!(f, "a link makes it `{}` as well, denied by {rule}", quoted(name))
            }
            Self::SpecialFile => f.write_str("special files are not applied"),
            Self::SpecialMode { mode } => write!(f, "files with mode {mode:04o} are not applied"),
            Self::LinkLeaves { target } => write!(f, "the link to `{}` may leave the workspace", quoted(target)),
            Self::GitElsewhere => f.write_str("it sends git to settings and hooks elsewhere, which can run commands"),
            Self::BareRepository { directory } if directory.as_os_str().is_empty() => {
                f.write_str("it makes the workspace a bare repository, whose settings and hooks git obeys")
            }
            Self::BareRepository { directory } => {
                write!(f, "it makes `{}` a bare repository, whose settings and hooks git obeys", quoted(directory))
            }
            Self::ThroughLink => f.write_str("a directory on the way is a link on the host"),
            Self::OtherFileSystem => f.write_str("it lies on another file system than the workspace"),
            Self::NotKept { why } => write!(f, "it was not kept: {}", unsaved(*why)),
            Self::Conflict(difference) => difference.fmt(f),
            Self::NotChanged => f.write_str("it did not change"),
            Self::BadPath => f.write_str("it names no place inside the workspace"),
        }
    }
}

impl fmt::Display for HostDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "it changed on the host since the sandbox was made",
            Self::Appeared => "it exists on the host now",
            Self::Gone => "it is gone from the host",
            Self::NotEmpty => "the directory holds something else on the host now",
        })
    }
}
