//! Change sets: immutable, numbered states of the saved changes.
//!
//! Every state of the saved changes is a set: the result of a save that found a difference, the remainder after an apply,
//! the state after an undo. A set never changes, and its number is never given to another one.

use std::path::PathBuf;

use base::Digest;
use policy::FileDenials;
use protocol::LeftProcess;
use serde::{Deserialize, Serialize};

use super::commits::RepositoryStart;
use super::git_directory::is_inside_git_directory;
use super::manifest::{Manifest, ManifestEntry};
use super::set_digest::digest_of;
use super::{SavedChange, json_path};
use crate::overlay::ChangeKind;

/// The facts that a caller adds to a set when it is saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetNote {
    /// The turn that made the changes.
    pub turn: Option<String>,
    /// The processes that still ran when the set was saved.
    pub left_processes: Vec<LeftProcess>,
}

/// The operation that made a set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetOrigin {
    /// The changes of the sandbox were saved.
    #[default]
    Save,
    /// Changes were applied, and this is the rest.
    Apply,
    /// An apply was undone.
    Undo,
}

/// A set without its list of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSummary {
    /// The number, from 1; 0 when nothing was ever changed.
    pub number: u64,
    /// The digest of the set.
    pub digest: Digest,
    /// When the set was made, in milliseconds since 1970.
    pub made_unix_millis: u64,
    /// The operation that made it.
    #[serde(default)]
    pub origin: SetOrigin,
    /// The turn that made the changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The processes that still ran when the set was saved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_processes: Vec<LeftProcess>,
    /// The number of added paths.
    pub added: usize,
    /// The number of changed paths.
    pub modified: usize,
    /// The number of deleted paths.
    pub deleted: usize,
}

impl SetSummary {
    /// Returns the summary of a session that never changed anything.
    pub fn nothing() -> Self {
        Self {
            number: 0,
            digest: digest_of(std::path::Path::new(""), [].iter(), &[]),
            made_unix_millis: 0,
            origin: SetOrigin::Save,
            turn: None,
            left_processes: Vec::new(),
            added: 0,
            modified: 0,
            deleted: 0,
        }
    }

    /// Returns the summary of the changes in `manifest`.
    pub(crate) fn of(manifest: &Manifest, digest: Digest) -> Self {
        let files = || manifest.changes.iter().filter(|record| !is_inside_git_directory(&record.change.path));
        let count = |kind| files().filter(|record| record.change.kind == kind).count();
        Self {
            number: manifest.set,
            digest,
            made_unix_millis: u64::try_from(manifest.saved_nanos / 1_000_000).unwrap_or_default(),
            added: count(ChangeKind::Added),
            modified: count(ChangeKind::Modified),
            deleted: count(ChangeKind::Deleted),
            ..Self::nothing()
        }
    }

    /// Returns the number of changed paths.
    pub fn paths(&self) -> usize {
        self.added + self.modified + self.deleted
    }

    /// Returns the first digits of the digest, enough to name the set on a command line.
    pub fn short_digest(&self) -> String {
        self.digest.to_string().chars().take(Self::SHORT_DIGITS).collect()
    }

    /// The fewest digits that name a digest.
    pub const SHORT_DIGITS: usize = 12;

    /// Returns whether `text` is the digest of this set, or at least its first twelve digits.
    pub fn is_named(&self, text: &str) -> bool {
        text.len() >= Self::SHORT_DIGITS && self.digest.to_string().starts_with(text)
    }
}

/// A set as a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SetRecord {
    pub(crate) version: u32,
    pub(crate) summary: SetSummary,
    /// The directory on the host.
    #[serde(with = "json_path")]
    pub(crate) workspace: PathBuf,
    /// When the sandbox was made.
    pub(crate) since_nanos: i64,
    /// The tips of the commits that belong to the set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) commits: Vec<String>,
    /// The branches of the host's repository when the session began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) repository: Option<RepositoryStart>,
    /// The file denials of the sandbox's policy.
    #[serde(default)]
    pub(crate) denials: FileDenials,
    /// Deletions first, then by path.
    pub(crate) changes: Vec<SavedChange>,
}

/// The first part of the file of a set. Reading it is much faster than reading the whole set.
#[derive(Debug, Deserialize)]
pub(crate) struct SetHeader {
    pub(crate) summary: SetSummary,
}

impl SetRecord {
    pub(crate) const VERSION: u32 = 1;

    pub(crate) fn of(manifest: &Manifest, summary: SetSummary) -> Self {
        Self {
            version: Self::VERSION,
            summary,
            workspace: manifest.workspace.clone(),
            since_nanos: manifest.since_nanos,
            commits: manifest.commits.clone(),
            repository: manifest.repository.clone(),
            denials: manifest.denials.clone(),
            changes: manifest.changes.iter().map(|record| record.change.clone()).collect(),
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        digest_of(&self.workspace, self.changes.iter(), &self.commits)
    }

    /// Returns the set in the form in which changes are shown and applied.
    pub(crate) fn into_manifest(self) -> Manifest {
        let nanos = self.summary.made_unix_millis.saturating_mul(1_000_000);
        Manifest {
            version: Manifest::VERSION,
            workspace: self.workspace,
            since_nanos: self.since_nanos,
            saved_nanos: i64::try_from(nanos).unwrap_or(i64::MAX),
            changes: self.changes.into_iter().map(|change| ManifestEntry { change, upper: None }).collect(),
            known: Vec::new(),
            denials: self.denials,
            set: self.summary.number,
            commits: self.commits,
            repository: self.repository,
        }
    }
}
