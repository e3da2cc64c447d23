//! Storage of everything that must survive a crash: journals, bodies of model calls, the sessions index and the ledger.
//!
//! Only the journal assigns sequence numbers, and only after the record is written. A client that knows a number can
//! read that record, before and after kill -9.
//!
//! Not here: the meaning of events (`protocol`), and who may read them (`server`).

mod body_store;
mod clock;
mod data_dir;
mod database;
mod disk_full;
mod disk_reserve;
mod feed;
mod idempotency;
mod journal;
mod keys;
mod ledger;
mod lock_file;
mod owner;
mod sessions;
mod storage_meter;
mod tokens;

pub use body_store::{BodyError, BodyKind, BodyWriter, FileBodyStore};
pub use clock::{Clock, SystemClock};
pub use data_dir::{DataDir, DataDirError, ServerLock};
pub use database::DatabaseError;
pub use disk_full::is_disk_full;
pub use disk_reserve::DiskReserve;
pub use feed::{EventFeed, EventRange, FeedCursor, FeedCursorError, GrownSessions, GrowthTracker};
pub use idempotency::{IdempotencyStore, RecordedResponse, RequestLookup};
pub use journal::{
    FileJournal, FilePool, Journal, JournalError, JournalReader, JournalTail, LineDefect, MemoryJournal, OpenedJournal,
    StoredRange, VerifiedJournal, copy_journal, verify_journal,
};
pub use keys::{KeyRecord, KeyStore, NewKey};
pub use ledger::{
    CallCharge, CallHold, CallProgress, CallSource, Durability, EstimatedCall, HoldChange, Ledger, LedgerAudit,
    LedgerError, LedgerOperation, LedgerReply, LimitAmount, LimitExceeded, LimitScope, LimitWindow, OpenedLedger,
    Resolution, ResolvedCall, SinceTime, SinceTimeError, SqliteLedger, UNPRICED_HASH, UnknownCall, UsageGrouping,
    UsageLimit, UsageRow,
};
pub use owner::{OwnerId, ProcessOwner};
pub use sessions::{
    DriftRecord, LabelFilter, NewSession, SessionFilter, SessionIndex, SessionIndexError, SessionListCursor,
    SessionOrigin, SessionOutcome, SessionPage, SessionPatch, SessionProgress, SessionRecord, SessionTally,
};
pub use storage_meter::{FreeSpaceFloor, StorageExceeded, StorageLimits, StorageMeter};
pub use tokens::{NewToken, TokenRecord, TokenStore};
