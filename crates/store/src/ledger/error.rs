//! Why the ledger refused or failed.

use std::sync::Arc;

use protocol::{CallId, ProblemCode};

use super::{LimitAmount, UsageLimit};
use crate::{DataDirError, DatabaseError};

/// Why the ledger refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// A limit is used up. Nothing was held.
    #[error(transparent)]
    Refused(#[from] LimitExceeded),
    /// The call, or its source, was held before.
    #[error("call `{0}` is in the ledger already")]
    Duplicate(CallId),
    /// No such call.
    #[error("call `{0}` is not in the ledger")]
    NotFound(CallId),
    /// The step does not follow from where the call is.
    #[error("call `{call}` is {state}; it cannot be {wanted}")]
    OutOfOrder {
        /// The call.
        call: CallId,
        /// Where it is.
        state: String,
        /// What was asked for.
        wanted: &'static str,
    },
    /// More than any call can cost.
    #[error("{0} pico-dollars are more than one call can cost")]
    TooMuch(u64),
    /// The ledger has been closed.
    #[error("the ledger is closed")]
    Stopped,
    /// The database failed; nothing was recorded.
    #[error(transparent)]
    Database(Arc<DatabaseError>),
    /// A file of the ledger failed; nothing was recorded.
    #[error("cannot use the ledger's files")]
    Files(#[source] Arc<std::io::Error>),
    /// The data directory cannot be used.
    #[error("cannot use the data directory")]
    DataDir(#[from] Arc<DataDirError>),
    /// Whether an owner or this boot is the one of a record could not be found out.
    #[error("cannot find out who left the calls that are not finished")]
    Recovery(#[source] Arc<std::io::Error>),
}

/// A limit that would have been passed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` allows {} {}; {spent} spent, {held} held, {asked} asked", .limit.name, .limit.max.amount(), .limit.max.unit())]
pub struct LimitExceeded {
    /// The limit.
    pub limit: UsageLimit,
    /// Used up already, in the limit's unit.
    pub spent: u64,
    /// Set aside for calls that are not finished.
    pub held: u64,
    /// What this call asked for on top.
    pub asked: u64,
}

impl LimitAmount {
    fn unit(self) -> &'static str {
        match self {
            Self::Picos(_) => "pico-dollars",
            Self::Requests(_) => "requests",
        }
    }
}

impl LedgerError {
    pub(crate) fn files(error: std::io::Error) -> Self {
        Self::Files(Arc::new(error))
    }

    /// Stable identifier for clients.
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
