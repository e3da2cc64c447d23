//! Review of an overlay workspace: what changed, kept after the sandbox is gone, and applied to the host.
//!
//! The upper layer and everything saved from it was written by the sandbox and is not trusted. Nothing
//! reaches the host but what `apply` writes, path by path, after every path of it was found allowed.
//!
//! Not here: printing, what is denied (`policy`), how the layers come to be (`jail`).

mod apply;
mod change;
mod contents;
mod diff;
mod journal;
mod lock;
pub(crate) mod lossless;
mod manifest;
mod render;
mod restore;
mod save;
mod saved;
mod stamp;
pub(crate) mod walk;

pub use apply::{
    ApplyError, ApplyReport, HostDifference, RefusalReason, RefusedPath, WriteRules, apply, denying, finish, undo,
};
pub use change::{SavedChange, SavedEntry, UnsavedReason};
pub use lossless::quoted;
pub use render::{render_diff, render_stat, visible};
pub use saved::{ChangeStat, LineCount, SavedChanges, discard};
pub use stamp::FileStamp;

#[cfg(test)]
mod tests;
