//! What every model call costs: held before it is sent, charged after, never lost and never twice.
//!
//! A call goes `intent → sent → streaming → settled | failed | unknown`. Its hold counts against every limit
//! from the moment it is granted until the call is settled or failed; of an unknown call it counts until
//! somebody finds out. All sums are integers in pico-dollars.
//!
//! A step is taken when it stands in the daybook, a file of lines; the tables, which answer what was used, follow it.
//!
//! Not here: what a token costs, or which limits a session has (`gateway`, `policy`).

mod backlog;
mod batch;
mod book;
mod carry;
mod daybook;
mod entry;
mod error;
mod hold;
mod lease;
mod limit;
mod memory;
mod port;
mod recovery;
mod report;
mod resolution;
mod row;
mod schema;
mod since;
mod sqlite;
mod sums;
mod teller;
mod totals;
mod writer;

pub use error::{LedgerError, LimitExceeded};
pub use hold::{CallCharge, CallHold, CallProgress, CallSource};
pub use limit::{LimitAmount, LimitScope, LimitWindow, UsageLimit};
pub use port::{Ledger, LedgerOperation, LedgerReply};
pub use report::{LedgerAudit, UnknownCall, UsageGrouping, UsageRow};
pub use resolution::{Resolution, ResolvedCall};
pub(crate) use schema::SCHEMA;
pub use since::{SinceTime, SinceTimeError};
pub use sqlite::{Durability, OpenedLedger, SqliteLedger};
