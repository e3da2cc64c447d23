//! Errors of the ledger.

use std::sync::Arc;

use protocol::{CallId, ProblemCode};

use super::{LimitAmount, UsageLimit};
use crate::{DataDirError, DatabaseError};

/// A ledger operation was refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// A limit would be exceeded. Nothing was held.
    #[error(transparent)]
    Refused(#[from] LimitExceeded),
    /// The call or its source was held before.
    #[error("call `{0}` is already in the ledger")]
    Duplicate(CallId),
    /// The call does not exist.
    #[error("call `{0}` is not in the ledger")]
    NotFound(CallId),
    /// The state of the call does not allow the operation.
    #[error("call `{call}` is {state}; it cannot be {wanted}")]
    OutOfOrder {
        /// The call.
        call: CallId,
        /// The state of the call.
        state: String,
        /// The requested state.
        wanted: &'static str,
    },
    /// The amount exceeds the highest cost of one call, or would overflow the total.
    #[error("amount too large: {0} pico-dollars for one call")]
    TooMuch(u64),
    /// The ledger was closed.
    #[error("the ledger is closed")]
    Stopped,
    /// A query failed; nothing was recorded.
    #[error(transparent)]
    Database(Arc<DatabaseError>),
    /// The write-ahead log or the key file failed; nothing was recorded.
    #[error("cannot read or write a file of the ledger")]
    Files(#[source] Arc<std::io::Error>),
    /// The data directory cannot be used.
    #[error("cannot use the data directory")]
    DataDir(#[from] Arc<DataDirError>),
    /// The owners of unfinished calls could not be checked.
    #[error("cannot check the owners of unfinished calls")]
    Recovery(#[source] Arc<std::io::Error>),
}

/// A limit that a hold would exceed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` allows {} {}; {spent} spent, {held} held, {asked} requested", .limit.name, .limit.max.amount(), .limit.max.unit())]
pub struct LimitExceeded {
    /// The limit.
    pub limit: UsageLimit,
    /// Amount spent, in the unit of the limit.
    pub spent: u64,
    /// Amount held for unfinished calls.
    pub held: u64,
    /// Amount requested by this call.
    pub asked: u64,
}

impl LimitAmount {
    fn unit(self) -> &'static str {
        match self {
            Self::Picos(_) => "pico-dollars",
            Self::Tokens(_) => "tokens",
            Self::Requests(_) => "requests",
        }
    }
}

impl LedgerError {
    pub(crate) fn files(error: std::io::Error) -> Self {
        Self::Files(Arc::new(error))
    }

    /// Returns the stable code for clients.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Refused(_) => ProblemCode::BudgetExceeded,
            Self::DataDir(error) => error.code(),
            _ => ProblemCode::Internal,
        }
    }
}

impl From<DatabaseError> for LedgerError {
    fn from(error: DatabaseError) -> Self {
        Self::Database(Arc::new(error))
    }
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        DatabaseError::from(error).into()
    }
}
