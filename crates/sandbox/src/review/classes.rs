//! Classes of changed paths: plain, runs by itself, refused, ignored.
//!
//! One classifier serves the apply, the diff, the summary and the API, so that a person sees the class by which a path is
//! applied. Changes of the workspace's own git directory are never applied as files and have no class.
//!
//! Not here: conflicts with changes on the host (`apply`), and printing (`render`).

mod classifier;
mod folded_name;
mod host_git;
mod host_settings;
mod host_view;
mod link_map;
mod name_rules;
mod repository;
mod run_kind;
mod submodules;

use std::io;

use serde::{Deserialize, Serialize};

use super::{RefusalReason, SavedChange, SavedChanges};

pub(crate) use classifier::{Classifier, is_left_to_git};
pub(crate) use host_view::HostView;
pub use name_rules::WriteRules;
pub use run_kind::RunKind;

/// The class of a changed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathClass {
    /// An ordinary file.
    Plain,
    /// A program on the host obeys the file without being asked: it is applied only when a person names it.
    RunsByItself {
        /// The reason.
        kind: RunKind,
    },
    /// The change is never applied.
    Refused {
        /// The reason.
        reason: RefusalReason,
    },
    /// The repository ignores the path: it is left out unless a person asks for ignored paths.
    Ignored,
}

/// The name of a class, as in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassName {
    /// An ordinary file.
    #[default]
    Plain,
    /// Applied only when a person names it.
    RunsByItself,
    /// Never applied.
    Refused,
    /// Left out unless a person asks for ignored paths.
    Ignored,
}

impl PathClass {
    /// Returns the name of the class.
    pub fn name(&self) -> ClassName {
        match self {
            Self::Plain => ClassName::Plain,
            Self::RunsByItself { .. } => ClassName::RunsByItself,
            Self::Refused { .. } => ClassName::Refused,
            Self::Ignored => ClassName::Ignored,
        }
    }

    /// Returns the reason for the class, for display; `None` for a plain or ignored path.
    pub fn why(&self) -> Option<String> {
        match self {
            Self::Plain | Self::Ignored => None,
            Self::RunsByItself { kind } => Some(kind.to_string()),
            Self::Refused { reason } => Some(reason.to_string()),
        }
    }
}

/// Returns the saved changes with their classes, as they would be applied with the rules of the sandbox's own policy.
pub(crate) fn classify(saved: &SavedChanges) -> io::Result<Vec<(&SavedChange, PathClass)>> {
    let changes: Vec<&SavedChange> = saved.changes().collect();
    let root = saved.workspace().canonicalize().unwrap_or_else(|_| saved.workspace().to_owned());
    let host = HostView::read(&root, &changes)?;
    let shown: Vec<&SavedChange> = changes.into_iter().filter(|change| !is_left_to_git(change, &host)).collect();
    let applied: Vec<&SavedChange> =
        shown.iter().copied().filter(|change| !host.ignored.contains(&change.path)).collect();
    let classifier = Classifier::new(saved, &host, &applied, &[&saved.manifest.denials], &|_| None)?;
    shown
        .into_iter()
        .map(|change| {
            if host.ignored.contains(&change.path) {
                return Ok((change, PathClass::Ignored));
            }
            Ok((change, classifier.judge(change)?.class()))
        })
        .collect()
}
