//! Reasons for which a change is not applied.

use std::fmt;
use std::path::PathBuf;

use policy::RuleRef;
use serde::Serialize;

use crate::review::classes::RunKind;
use crate::review::json_path::{self, quoted};
use crate::review::render::unsaved;
use crate::review::{FileStamp, UnsavedReason};

/// One refused path, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedPath {
    /// Relative to the workspace.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// The reason.
    #[serde(flatten)]
    pub reason: RefusalReason,
}

/// The reason against a change.
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
    /// A link whose name is above names that the policy denies: everything that it leads to would get such names.
    LinkNamesDenied {
        /// The rule that denies these names.
        rule: RuleRef,
    },
    /// A program on the host obeys the file without being asked, and nobody confirmed it.
    NotConfirmed {
        /// The reason why the file runs by itself.
        kind: RunKind,
        /// The other name under which the file runs, if a link gives it one.
        #[serde(with = "optional_path", skip_serializing_if = "Option::is_none")]
        name: Option<PathBuf>,
    },
    /// A setting of the host's git names the path.
    NamedByGit {
        /// The key of the setting.
        key: String,
        /// The other name that is named, if a link gives the path one.
        #[serde(with = "optional_path", skip_serializing_if = "Option::is_none")]
        name: Option<PathBuf>,
    },
    /// The path belongs to a git directory, or a link gives it the name of such a file.
    InsideGitDirectory {
        /// The git directory, or the name.
        #[serde(with = "json_path")]
        directory: PathBuf,
    },
    /// A link that leads into a git directory.
    LinkIntoGit {
        /// The target of the link.
        #[serde(with = "json_path")]
        target: PathBuf,
    },
    /// A list of submodules with settings that can run commands or write elsewhere.
    Submodules {
        /// The setting.
        why: String,
    },
    /// Links give the path more names than are checked.
    TooManyNames,
    /// The path is a FIFO, socket or device, or replaces one.
    SpecialFile,
    /// A file with a setuid, setgid or sticky bit.
    SpecialMode {
        /// The permission bits.
        mode: u32,
    },
    /// A link that leads, or may lead, out of the workspace.
    LinkLeaves {
        /// The target of the link.
        #[serde(with = "json_path")]
        target: PathBuf,
    },
    /// A `.git` that is not a directory, which sends git to settings and hooks elsewhere.
    GitElsewhere,
    /// The path would make a directory of any name a repository whose settings and hooks git obeys.
    BareRepository {
        /// The directory, relative to the workspace.
        #[serde(with = "json_path")]
        directory: PathBuf,
    },
    /// A commit changes a submodule, or the list of submodules.
    Submodule,
    /// A parent directory is a link on the host.
    ThroughLink,
    /// The path is on another file system than the workspace.
    OtherFileSystem,
    /// The content was not saved.
    NotKept {
        /// The reason.
        why: UnsavedReason,
    },
    /// The file on the host changed since the sandbox was made.
    Conflict(HostDifference),
    /// The path did not change.
    NotChanged,
    /// The path is not inside the workspace.
    BadPath,
}

/// How a path on the host differs from its earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "difference", rename_all = "snake_case")]
pub enum HostDifference {
    /// The path changed since the sandbox was made.
    Changed,
    /// The path exists now.
    Appeared,
    /// The path no longer exists.
    Gone,
    /// A directory to be removed has other entries now.
    NotEmpty,
}

impl HostDifference {
    /// Returns the difference between the earlier stamp and the current one.
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
                write!(f, "a link also names it `{}`, which is denied by {rule}", quoted(name))
            }
            Self::LinkNamesDenied { rule } => {
                write!(f, "a link of this name gives other files names that are denied by {rule}")
            }
            Self::NotConfirmed { kind, name: None } => write!(f, "it runs by itself ({kind}) and was not confirmed"),
            Self::NotConfirmed { kind, name: Some(name) } => {
                write!(
                    f,
                    "a link also names it `{}`, which runs by itself ({kind}); it was not confirmed",
                    quoted(name)
                )
            }
            Self::NamedByGit { key, name: None } => write!(f, "git on this machine obeys it: `{key}` names it"),
            Self::NamedByGit { key, name: Some(name) } => {
                write!(f, "a link also names it `{}`, which git on this machine obeys: `{key}` names it", quoted(name))
            }
            Self::InsideGitDirectory { directory } => {
                write!(f, "files of a git directory (`{}`) are never applied", quoted(directory))
            }
            Self::LinkIntoGit { target } => write!(f, "the link to `{}` leads into a git directory", quoted(target)),
            Self::Submodules { why } => f.write_str(why),
            Self::TooManyNames => f.write_str("links give it more names than can be checked"),
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
            Self::Submodule => f.write_str("it belongs to a submodule, whose own commits are not imported"),
            Self::ThroughLink => f.write_str("a parent directory is a link on the host"),
            Self::OtherFileSystem => f.write_str("it is on another file system than the workspace"),
            Self::NotKept { why } => write!(f, "it was not saved: {}", unsaved(*why)),
            Self::Conflict(difference) => difference.fmt(f),
            Self::NotChanged => f.write_str("it did not change"),
            Self::BadPath => f.write_str("the path is not inside the workspace"),
        }
    }
}

impl fmt::Display for HostDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "it changed on the host since the sandbox was made",
            Self::Appeared => "it exists on the host now",
            Self::Gone => "it no longer exists on the host",
            Self::NotEmpty => "the directory has other entries on the host now",
        })
    }
}

/// For `#[serde(with)]`.
mod optional_path {
    use std::path::PathBuf;

    use serde::{Serialize, Serializer};

    // The signature is serde's.
    #[expect(clippy::ref_option)]
    pub(super) fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Json<'a>(#[serde(with = "crate::review::json_path")] &'a std::path::Path);
        path.as_deref().map(Json).serialize(serializer)
    }
}
