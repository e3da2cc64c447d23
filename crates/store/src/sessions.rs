//! The sessions index: a table of all sessions, shared by all processes of a data directory.
//!
//! The events of a session are in its journal. The index holds the data to find and list sessions, and the process that
//! runs each one. A session has one owner at a time; a new owner increments its epoch.

mod error;
mod index;
mod name;
mod record;

pub use error::SessionIndexError;
pub use index::{DriftRecord, LabelFilter, SessionFilter, SessionIndex, SessionProgress, SessionTally};
pub use record::{
    NewSession, SessionListCursor, SessionOrigin, SessionOutcome, SessionPage, SessionPatch, SessionRecord,
};

pub(crate) use index::SCHEMA;
