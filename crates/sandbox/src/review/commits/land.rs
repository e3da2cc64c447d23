//! Applies imported commits: moves the host's current branch forward, as `git merge --ff-only` does, without hooks.
//!
//! The branch moves only when it is where the session began, and when no local change would be overwritten. In every
//! other case the commits stay at their reference, and the error has the command that merges them by hand.

use serde::Serialize;

use super::bare::BareRepository;
use super::commit::{CommitChange, ImportedTip, TipRelation};
use super::git::GitCommand;
use super::host_repository::HostRepository;
use super::landed_files::record_landed;
use super::list::CommitReader;
use super::path_check::refusals;
use super::repository_start::RepositoryStart;
use super::session_refs::CommitTip;
use super::{CommitsError, import_commits};
use crate::review::{ApplyOptions, SavedChanges, WriteRules};

/// The commits that were applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedCommits {
    /// The host's branch.
    pub branch: String,
    /// The commit of the branch before the apply; `None` if it had none.
    pub from: Option<String>,
    /// The commit of the branch after the apply.
    pub to: String,
    /// The number of commits.
    pub commit_count: usize,
    /// The paths that differ.
    pub changes: Vec<CommitChange>,
    /// References with further commits of the session, which were not applied.
    pub left: Vec<String>,
}

/// Moves the host's current branch to the session's commits. `expected` are the tips that were reviewed; others fail. Paths
/// that run by themselves must be confirmed by `options`. `rules` returns the rule that denies writing a path.
pub fn apply_commits(
    saved: &SavedChanges,
    session: &str,
    expected: Option<&[CommitTip]>,
    options: &ApplyOptions,
    rules: WriteRules<'_>,
) -> Result<AppliedCommits, CommitsError> {
    let found = import_commits(saved, session)?;
    let tips: Vec<CommitTip> = found.tips.iter().map(|tip| tip.tip.clone()).collect();
    if expected.is_some_and(|expected| expected != tips) {
        return Err(CommitsError::Stale);
    }
    let waiting: Vec<&ImportedTip> = found.tips.iter().filter(|tip| tip.relation != TipRelation::Landed).collect();
    let first = *waiting.first().ok_or(CommitsError::NoCommits)?;
    let now = RepositoryStart::read(saved.workspace())?;
    let current = now.head_branch();
    let Some(tip) = waiting.iter().find(|tip| tip.tip.branch().is_some() && tip.tip.branch() == current) else {
        let why = match current {
            Some(branch) => format!("the session has no commits for the host's current branch `{branch}`"),
            None => "the host has a commit checked out, not a branch".to_owned(),
        };
        Landing { saved, tip: first, branch: "" }.check_paths(options, rules)?;
        return Err(CommitsError::NotForward { why, reference: first.imported_as.clone() });
    };
    let landing = Landing { saved, tip, branch: tip.tip.branch().unwrap_or_default() };
    // First: the error about the position has a command that merges the commits.
    landing.check_paths(options, rules)?;
    landing.check_position(&now)?;
    landing.merge()?;
    if let Err(error) = record_landed(saved, &tip.changes) {
        // The commits are applied. Their files stay listed, as conflicts.
        tracing::warn!(%error, "cannot record the files that landed with commits");
    }
    let others = waiting.iter().filter(|other| other.tip != tip.tip && other.tip.id != tip.tip.id);
    Ok(AppliedCommits {
        branch: landing.branch.to_owned(),
        from: tip.start.clone(),
        to: tip.tip.id.clone(),
        commit_count: tip.commit_count,
        changes: tip.changes.clone(),
        left: others.map(|other| other.imported_as.clone()).collect(),
    })
}

struct Landing<'a> {
    saved: &'a SavedChanges,
    tip: &'a ImportedTip,
    branch: &'a str,
}

impl Landing<'_> {
    fn not_forward(&self, why: impl Into<String>) -> CommitsError {
        CommitsError::NotForward { why: why.into(), reference: self.tip.imported_as.clone() }
    }

    /// Fails unless the host's branch is where the session began.
    fn check_position(&self, now: &RepositoryStart) -> Result<(), CommitsError> {
        let branch = self.branch;
        if now.branch(branch) != self.tip.start.as_deref() {
            return Err(self.not_forward(format!("the host's branch `{branch}` moved since the session began")));
        }
        match self.tip.relation {
            TipRelation::Forward | TipRelation::New => Ok(()),
            _ => Err(self.not_forward(format!("the session rewrote commits of the host's branch `{branch}`"))),
        }
    }

    /// Fails when the commits write a path that is refused, or that was not confirmed.
    fn check_paths(&self, options: &ApplyOptions, rules: WriteRules<'_>) -> Result<(), CommitsError> {
        let host = HostRepository::open(self.saved.workspace())?;
        let view = BareRepository::view(self.saved, &host)?;
        let paths = refusals(self.saved, &CommitReader { view: &view }, &self.tip.changes, options, rules)?;
        if paths.is_empty() {
            return Ok(());
        }
        Err(CommitsError::Denied { paths, reference: self.tip.imported_as.clone() })
    }

    fn merge(&self) -> Result<(), CommitsError> {
        let host = HostRepository::open(self.saved.workspace())?;
        let arguments = [
            "merge",
            "--ff-only",
            "--no-autostash",
            "--no-overwrite-ignore",
            "--no-stat",
            "--quiet",
            "--no-verify",
            "--",
            &self.tip.tip.id,
        ];
        let merged = GitCommand::new(host.place(), arguments).run()?;
        if merged.succeeded { Ok(()) } else { Err(self.not_forward(merged.message)) }
    }
}
