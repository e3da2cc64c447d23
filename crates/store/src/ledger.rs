//! The cost of every model call: an amount is held before the call is sent and replaced by the actual cost after it.
//!
//! A call goes through the states `intent → sent → streaming → settled | failed | unknown`. Its hold counts against
//! every limit until the call is settled or failed; the hold of an unknown call stays until the call is resolved. All
//! amounts are integers in pico-dollars.
//!
//! An operation is applied once its line is in the write-ahead log. A background thread copies the log into the SQLite
//! tables, which answer queries. Recovery never loses an operation and never applies one twice.
//!
//! Not here: prices of tokens (`gateway`) and the limits of a session (`policy`).

mod cached_balances;
mod call;
mod checkpoint;
mod error;
mod lease;
mod limit;
mod log_entry;
mod new_call;
mod operation_writer;
mod port;
mod recovery;
mod report;
mod resolution;
mod schema;
mod since_time;
mod sqlite;
mod table_thread;
mod tables;
mod totals;
mod write_ahead_log;

pub use call::{CallCharge, CallHold, CallProgress, CallSource, HoldChange, UNPRICED_HASH};
pub use error::{LedgerError, LimitExceeded};
pub use limit::{LimitAmount, LimitScope, LimitWindow, UsageLimit};
pub use port::{Ledger, LedgerOperation, LedgerReply};
pub use report::{EstimatedCall, LedgerAudit, UnknownCall, UsageGrouping, UsageRow};
pub use resolution::{Resolution, ResolvedCall};
pub(crate) use schema::SCHEMA;
pub use since_time::{SinceTime, SinceTimeError};
pub use sqlite::{Durability, OpenedLedger, SqliteLedger};
