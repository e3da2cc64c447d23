//! The commits of a session: imports them into the host's repository, shows and applies them.
//!
//! They are imported whenever they are shown, below `refs/viv/<session>/`, so that a person can use their own tools on
//! them. Deleting the session or its changes removes these references.

use std::path::Path;

use protocol::SessionId;
use sandbox::{
    AppliedCommits, ApplyOptions, CommitsError, SessionCommits, apply_commits, commit_patch, commit_tips, denying_rule,
    import_commits, render_commits,
};
use serde::Serialize;

use super::{ReviewedSet, SessionChanges, ShownSet};
use crate::storage::run_blocking;
use crate::{SessionError, Sessions};

/// The commits of a session, or the reason why they cannot be imported.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitReview {
    /// The commits.
    #[serde(flatten)]
    pub commits: SessionCommits,
    /// The reason. No commit was imported then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<CommitProblem>,
}

/// The reason why commits cannot be imported.
#[derive(Debug, Serialize)]
pub struct CommitProblem {
    /// The stable error code.
    pub code: &'static str,
    /// The reason as a sentence.
    pub detail: String,
}

impl CommitReview {
    /// Returns whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.problem.is_none()
    }

    /// Returns the commits as text that is safe to print; empty without commits.
    pub fn as_text(&self) -> String {
        let problem = self.problem.as_ref().map(|problem| format!("commits[{}]: {}\n\n", problem.code, problem.detail));
        problem.unwrap_or_default() + &render_commits(&self.commits)
    }
}

impl SessionChanges {
    /// Imports the commits of the session `id` and returns them. An import that fails is part of the result, because the
    /// changed files can be reviewed without the commits.
    pub fn commits(&self, id: &SessionId) -> CommitReview {
        let Self::Saved(saved) = self else { return CommitReview::default() };
        match import_commits(saved, id.as_str()) {
            Ok(commits) => CommitReview { commits, problem: None },
            Err(error) => {
                let problem = CommitProblem { code: error.code().as_str(), detail: base::error_chain(&error) };
                CommitReview { commits: SessionCommits::default(), problem: Some(problem) }
            }
        }
    }

    /// Returns the patch of the commits against the start of the session, without paths that the changed files show.
    pub fn commit_patch(&self, review: &CommitReview) -> Result<String, CommitsError> {
        match self {
            Self::Saved(saved) => commit_patch(saved, &review.commits),
            Self::None | Self::Imported(_) => Ok(String::new()),
        }
    }
}

impl Sessions {
    /// Imports the commits of a change set and returns them.
    pub async fn list_commits(&self, id: &SessionId, set: Option<u64>) -> Result<CommitReview, SessionError> {
        let session = id.clone();
        Ok(self.read_changes(id, set, move |changes| Ok(changes.commits(&session))).await?.shown)
    }

    /// Returns the patch of commits that no changed file shows.
    pub async fn commits_as_patch(&self, id: &SessionId, set: Option<u64>) -> Result<String, SessionError> {
        let session = id.clone();
        let read = move |changes: &SessionChanges| Ok(changes.commit_patch(&changes.commits(&session)));
        Ok(self.read_changes(id, set, read).await?.shown?)
    }

    /// Moves the host's current branch to the commits of the set that was reviewed. Fails when the session has not ended,
    /// when another set is current, or when the branch cannot be moved forward.
    pub async fn apply_commits(
        &self,
        id: &SessionId,
        reviewed: ReviewedSet,
        options: ApplyOptions,
    ) -> Result<ShownSet<AppliedCommits>, SessionError> {
        self.require_ended(id)?;
        let workspace = self.host.store.index.get(id)?.info.directory;
        let (sessions, id) = (self.clone(), id.clone());
        run_blocking(move || {
            let changes = reviewed.open(sessions.directory(), &id)?;
            let SessionChanges::Saved(saved) = changes else { return Err(CommitsError::NoCommits.into()) };
            let policy = sessions.host.policy_in(workspace.as_deref().map(Path::new))?;
            let options = ApplyOptions { denials: policy.file_denials(), ..options };
            let tips = commit_tips(&saved).map_err(SessionError::Changes)?;
            let shown = apply_commits(&saved, id.as_str(), Some(&tips), &options, &|path| denying_rule(&policy, path))?;
            let set = SessionChanges::open_set(sessions.directory(), &id, None)?.summary();
            Ok(ShownSet { set: set.map_err(SessionError::Changes)?, shown })
        })
        .await
    }
}
