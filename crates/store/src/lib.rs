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
mod feed;
mod full;
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

pub use bodies::{BodyError, BodyKind, BodyWriter, FileBodyStore};
pub use clock::{Clock, SystemClock};
pub use data_dir::{DataDir, DataDirError, ServerLock};
pub use database::DatabaseError;
pub use feed::{EventFeed, EventRange, FeedCursor, FeedCursorError, GrownSessions, GrowthTracker};
pub use full::is_disk_full;
pub use journal::{
    FileJournal, FilePool, Journal, JournalError, JournalReader, JournalTail, LineDefect, MemoryJournal, OpenedJournal,
    StoredRange, VerifiedJournal, copy_journal, verify_journal,
};
pub use keys::{KeyRecord, KeyStore, NewKey};
pub use ledger::{
    CallCharge, CallHold, CallProgress, CallSource, Durability, Ledger, LedgerAudit, LedgerError, LedgerOperation,
    LedgerReply, LimitAmount, LimitExceeded, LimitScope, LimitWindow, OpenedLedger, Resolution, ResolvedCall,
    SinceTime, SinceTimeError, SqliteLedger, UnknownCall, UsageGrouping, UsageLimit, UsageRow,
};
pub use owner::{OwnerId, ProcessOwner};
pub use requests::{IdempotencyStore, RecordedResponse, RequestLookup};
pub use reserve::DiskReserve;
pub use sessions::{
    DriftRecord, NewSession, SessionIndex, SessionIndexError, SessionListCursor, SessionOutcome, SessionPage,
    SessionPatch, SessionProgress, SessionRecord,
};
pub use tokens::{NewToken, TokenRecord, TokenStore};
