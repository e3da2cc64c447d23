//! Review of an overlay workspace: what changed, kept after the sandbox is gone, and applied to the host.
//!
//! The upper layer and everything saved from it was written by the sandbox and is not trusted. Nothing
//! reaches the host but what `apply` writes, path by path, after every path of it was found allowed.
//!
//! Not here: printing, what is denied (`policy`), how the layers come to be (`jail`).

mod apply;
mod apply_journal;
mod change;
mod content_store;
mod diff;
mod file_stamp;
pub(crate) mod json_path;
mod manifest;
mod render;
mod restore;
mod save;
mod save_lock;
mod saved;
pub(crate) mod upper_walk;

pub use apply::{
    ApplyError, ApplyReport, HostDifference, RefusalReason, RefusedPath, WriteRules, apply, denying_rule, finish, undo,
};
pub use change::{SavedChange, SavedEntry, UnsavedReason};
pub use file_stamp::FileStamp;
pub use json_path::quoted;
pub use render::{render_diff, render_stat, visible};
pub use saved::{ChangeStat, LineCount, SavedChanges, discard};

#[cfg(test)]
mod tests;
