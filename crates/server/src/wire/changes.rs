//! Request and response bodies about change sets.

use std::path::PathBuf;

use sandbox::{ApplyOptions, SetOrigin, SetSummary};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use session::CommitReview;
use utoipa::{IntoParams, ToSchema};

/// Query of `GET …/changes`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangesQuery {
    /// The format of the changes: `json`, `stat` or `diff`.
    #[serde(default)]
    #[param(inline, required = false)]
    pub(crate) format: ChangesFormat,
    /// The number of an earlier change set; the current one if absent.
    #[param(required = false)]
    pub(crate) set: Option<u64>,
    /// The number of another change set: returns only the paths that differ between the two, as JSON.
    #[param(required = false)]
    pub(crate) against: Option<u64>,
}

/// The format of changes.
#[derive(Deserialize, Default, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChangesFormat {
    /// JSON: each path with its kind of change and number of lines.
    #[default]
    Json,
    /// Text: one line per file.
    Stat,
    /// A patch.
    Diff,
}

/// Body of `POST …/apply`.
#[derive(Deserialize, Default, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ApplyBody {
    /// Paths relative to the workspace; all changes if empty.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub(crate) paths: Vec<PathBuf>,
    /// The number of an earlier change set. `If-Match` then names the digest of that set.
    #[serde(default)]
    pub(crate) set: Option<u64>,
    /// Paths of files that run by themselves, such as CI workflows, and are applied all the same.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub(crate) confirm: Vec<PathBuf>,
    /// Whether refused and unconfirmed paths are left out. Otherwise one of them stops the apply.
    #[serde(default)]
    pub(crate) skip_refused: bool,
    /// Whether paths that `.gitignore` names are applied.
    #[serde(default)]
    pub(crate) ignored: bool,
    /// Whether the session's commits are applied, by moving the host's current branch forward, instead of its files.
    #[serde(default)]
    pub(crate) commits: bool,
}

impl From<ApplyBody> for ApplyOptions {
    fn from(body: ApplyBody) -> Self {
        let ApplyBody { paths, confirm, skip_refused, ignored, set: _, commits: _ } = body;
        Self { paths, confirm, skip_refused, ignored, ..Self::default() }
    }
}

/// Response of `GET …/changes`.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangeList {
    /// The change set; absent for an imported session.
    #[serde(flatten)]
    pub(crate) set: Option<ChangeSetHead>,
    /// Each path with its kind of change, number of lines, and class: `plain`, `runs_by_itself`, `refused` or `ignored`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub(crate) changes: Option<Value>,
    /// With `against`: each path that differs between the two sets. `added`: changed only in this set. `deleted`: changed
    /// only in the other set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub(crate) differences: Option<Value>,
    /// The commits of the set.
    #[serde(flatten)]
    pub(crate) review: CommitList,
}

impl ChangeList {
    /// Returns the differences between two sets.
    pub(crate) fn compared(set: Option<ChangeSetHead>, differences: Value) -> Self {
        Self { set, changes: None, differences: Some(differences), review: CommitReview::default().into() }
    }
}

/// A change set without its changes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangeSetHead {
    /// The number of the set, from 1; 0 if nothing was ever changed.
    pub(crate) set: u64,
    /// The digest of the set, which is also its `ETag`.
    pub(crate) digest: String,
    /// When the set was made, in milliseconds since 1970.
    pub(crate) made_at: u64,
    /// The turn that made the changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turn_id: Option<String>,
    /// Processes that still ran when the set was saved. Their later writes belong to the next set.
    #[schema(value_type = Vec<Object>)]
    pub(crate) left_processes: Value,
}

impl ChangeSetHead {
    pub(crate) fn of(set: SetSummary) -> Self {
        Self {
            set: set.number,
            digest: set.digest.to_string(),
            made_at: set.made_unix_millis,
            turn_id: set.turn,
            left_processes: json!(set.left_processes),
        }
    }
}

/// Response of `GET …/changes/sets`.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangeSetList {
    /// The kept change sets, oldest first.
    pub(crate) sets: Vec<ChangeSetRow>,
}

/// One row of the list of change sets.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangeSetRow {
    /// The set.
    #[serde(flatten)]
    pub(crate) head: ChangeSetHead,
    /// The operation that made the set: `save`, `apply` or `undo`.
    #[schema(value_type = String)]
    pub(crate) origin: SetOrigin,
    /// The number of added paths.
    pub(crate) added: usize,
    /// The number of changed paths.
    pub(crate) modified: usize,
    /// The number of deleted paths.
    pub(crate) deleted: usize,
}

impl ChangeSetRow {
    pub(crate) fn of(set: SetSummary) -> Self {
        let (origin, added, modified, deleted) = (set.origin, set.added, set.modified, set.deleted);
        Self { head: ChangeSetHead::of(set), origin, added, modified, deleted }
    }
}

/// The commits of a session, which are at `refs/viv/<session>/` of the host's repository.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommitList {
    /// Each commit with its id, branch, author, time, message and changed files; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    commits: Option<Value>,
    /// Each branch that moved, with its commit, its reference on the host and its changed paths with their classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    commit_tips: Option<Value>,
    /// References that were not imported, with the reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    skipped_references: Option<Value>,
    /// Code and detail of the reason why the commits were not imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    commits_problem: Option<Value>,
}

impl From<CommitReview> for CommitList {
    fn from(review: CommitReview) -> Self {
        let listed = |value: Value| Some(value).filter(|value| value.as_array().is_none_or(|list| !list.is_empty()));
        Self {
            commits: listed(json!(review.commits.commits)),
            commit_tips: listed(json!(review.commits.tips)),
            skipped_references: listed(json!(review.commits.skipped)),
            commits_problem: review.problem.map(|problem| json!(problem)),
        }
    }
}

/// Response of `POST …/apply`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AppliedList {
    /// The change set that is current now: the changes that were not applied.
    #[serde(flatten)]
    pub(crate) set: Option<ChangeSetHead>,
    /// Each applied path with its kind of change.
    #[schema(value_type = Vec<Object>)]
    pub(crate) applied: Value,
    /// The number of ignored paths, and the refused paths, that were left out.
    #[schema(value_type = Object)]
    pub(crate) left_out: Value,
    /// The host's branch with its commits before and now, if commits were applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) commits: Option<Value>,
}

impl AppliedList {
    /// Returns the response to an apply of files.
    pub(crate) fn files(set: Option<ChangeSetHead>, applied: Value, left_out: Value) -> Self {
        Self { set, applied, left_out, commits: None }
    }

    /// Returns the response to an apply of commits.
    pub(crate) fn commits(set: Option<ChangeSetHead>, commits: Value) -> Self {
        Self { set, applied: json!([]), left_out: json!({}), commits: Some(commits) }
    }
}
