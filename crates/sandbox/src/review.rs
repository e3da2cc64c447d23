//! Review of an overlay workspace: saves the changes, shows them, and applies them to the host.
//!
//! The sandbox wrote the upper layer and everything saved from it, so neither is trusted. Only `apply` writes to the host,
//! path by path, after every path was checked.
//!
//! Not here: printing, the denials (`policy`), and how the layers are made (`jail`).

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
