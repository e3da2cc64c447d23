//! Stored data of sessions: index, journals, saved changes and imported sessions.
//!
//! The journal is the truth. The session index is a summary of the journals and can be late.

mod foreign_journal;
mod imported_session;
mod listing;
mod open_state;
mod pending_index_updates;
mod recovery;
mod session_copy;
mod session_space;
mod session_store;
mod workspace_changes;
mod workspace_commits;

pub use imported_session::ImportedSession;
pub use listing::SessionListPage;
pub use workspace_changes::{ReviewedSet, SessionChanges, ShownSet};
pub use workspace_commits::{CommitProblem, CommitReview};

pub(crate) use foreign_journal::follow_journal;
pub(crate) use imported_session::{DIFF, LIST, recorded_usage, write_private_file};
pub(crate) use open_state::OpenState;
pub(crate) use recovery::{
    damaged_error, index_recorded_end, quarantine_if_damaged, recover_orphans, refuse_damaged, take_over,
};
pub(crate) use session_store::{SessionStore, last_sequence, run_blocking};

use pending_index_updates::PendingIndexUpdates;
