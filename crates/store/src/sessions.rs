//! The list of all sessions, for every process that has the data directory open.
//!
//! What a session did is in its journal; here is what is needed to find it, to list it, and to know who
//! runs it. A session has one owner at a time; taking one over raises its epoch.

mod error;
mod index;
mod name;
mod record;

pub use error::SessionIndexError;
pub use index::{DriftRecord, SessionIndex, SessionProgress};
pub use record::{NewSession, SessionListCursor, SessionOutcome, SessionPage, SessionPatch, SessionRecord};

pub(crate) use index::SCHEMA;
