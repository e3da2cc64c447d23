//! What must survive a crash: the journal of each session, the bodies beside it, the sessions index.
//!
//! The journal is the only place that gives sequence numbers, and it gives one only after the record
//! is written: a reader that was told a number can read it, before and after kill -9.
//!
//! Not here: what an event means (`protocol`), or who may read it (`server`).

mod clock;
mod journal;

pub use clock::{Clock, SystemClock};
pub use journal::{Journal, JournalError};
