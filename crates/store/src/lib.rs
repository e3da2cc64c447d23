//! What must survive a crash: the journal of each session, the bodies beside it, the sessions index, the ledger.
//!
//! The journal is the only place that gives sequence numbers, and it gives one only after the record
//! is written: a reader that was told a number can read it, before and after kill -9.
//!
//! Not here: what an event means (`protocol`), or who may read it (`server`).

mod bodies;
mod clock;
mod data_dir;
mod database;
mod digest;
mod feed;
mod full;
mod guard;
mod journal;
mod json;
mod keys;
mod ledger;
mod lock_file;
mod owner;
mod requests;
mod reserve;
mod sessions;
mod tokens;

pub use bodies::{Bodies, BodyError, BodyKind, BodyWriter};
pub use clock::{Clock, SystemClock};
pub use data_dir::{DataDir, DataDirError, ServerLock};
pub use database::DatabaseError;
pub use digest::{Digest, DigestError, Digesting};
pub use feed::{Feed, Grown, Growth, Run, Spot, SpotError};
pub use full::is_full;
pub use journal::{
    FileJournal, Flaw, Journal, JournalError, JournalReader, MemoryJournal, Opened, Spares, Stored, Tail, Verified,
    copy_as, verify,
};
pub use keys::{KeyRecord, Keys, NewKey};
pub use ledger::{
    Audit, By, Charge, Durability, Hold, Ledger, LedgerError, Limit, Most, OpenedLedger, Progress, Refusal, Reply,
    Resolution, ResolvedCall, Scope, Since, SinceError, Source, SqliteLedger, Step, UnknownCall, UsageRow, Window,
};
pub use owner::{Owner, OwnerId};
pub use requests::{Answered, Known, Requests};
pub use reserve::Reserve;
pub use sessions::{
    Cursor, DriftRecord, NewSession, SessionChange, SessionIndex, SessionIndexError, SessionOutcome, SessionPage,
    SessionRecord, Standing,
};
pub use tokens::{NewToken, TokenRecord, Tokens};
