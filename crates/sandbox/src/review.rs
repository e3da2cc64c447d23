//! Review of an overlay workspace: saves the changes, shows them, and applies them to the host.
//!
//! The sandbox wrote the upper layer and everything saved from it, so neither is trusted. Only `apply` writes to the host,
//! path by path, after every path was checked.
//!
//! Not here: printing, the denials (`policy`), and how the layers are made (`jail`).

mod apply;
mod apply_journal;
mod binary_patch;
mod change;
mod change_set;
mod classes;
mod commits;
mod content_store;
mod diff;
mod file_stamp;
pub(crate) mod git_directory;
pub(crate) mod json_path;
mod manifest;
mod render;
mod restore;
mod save;
mod save_lock;
mod saved;
mod set_difference;
mod set_digest;
mod set_store;
pub(crate) mod upper_walk;

pub use apply::{
    ApplyError, ApplyOptions, ApplyReport, HostDifference, LeftOut, RefusalReason, RefusedPath, apply, denying_rule,
    finish, undo,
};
pub use change::{SavedChange, SavedEntry, UnsavedReason};
pub use change_set::{SetNote, SetOrigin, SetSummary};
pub use classes::{ClassName, PathClass, RunKind, WriteRules};
pub use commits::{
    AppliedCommits, Commit, CommitChange, CommitFile, CommitTip, CommitsError, GitIdentity, ImportedTip,
    RepositoryStart, SessionCommits, SkippedReference, TipRelation, apply_commits, commit_patch, commit_tips,
    import_commits, remove_imported_commits, render_commits,
};
pub use file_stamp::FileStamp;
pub use git_directory::is_inside_git_directory;
pub use json_path::quoted;
pub use render::{render_diff, render_stat, visible};
pub use saved::{ChangeStat, LineCount, SavedChanges, discard};
pub use set_difference::{SetDifference, compare_sets};

#[cfg(test)]
mod tests;
