//! The ledger as a port: operations, and replies that arrive when an operation is durable.

use std::pin::Pin;
use std::task::{Context, Poll};

use protocol::CallId;
use tokio::sync::oneshot;

use super::report::{UnknownCall, UsageGrouping, UsageRow};
use super::{CallCharge, CallHold, CallProgress, HoldChange, LedgerError, Resolution};

/// One operation on one call.
#[derive(Debug, Clone)]
pub enum LedgerOperation {
    /// Reserves the highest possible cost of a call, if every limit of the hold allows it.
    Hold(Box<CallHold>),
    /// Changes the held amount of a call that has not ended. A larger amount is held only if every limit allows it.
    Adjust(CallId, HoldChange),
    /// Records the progress of a call.
    Advance(CallId, CallProgress),
    /// Ends a call with its cost. The same charge again changes nothing; a different one replaces only an estimate.
    Settle(CallId, CallCharge),
    /// Ends a call without cost, with the reason.
    Fail(CallId, String),
    /// Ends an unknown or estimated call with the cost that a person states, and records who stated it.
    Resolve(CallId, Resolution),
}

/// The record of the cost of every call.
///
/// A reply means that the operation has the durability with which the ledger was opened: a call must not be sent before
/// the replies to its hold and its [`CallProgress::Sent`]. Limits are never exceeded, with any number of concurrent
/// callers. An operation that failed changed nothing.
pub trait Ledger: Send + Sync {
    /// Applies `operations` in this order and returns a reply for each. A refused operation does not stop the others.
    ///
    /// A batch costs little more than one operation.
    fn submit(&self, operations: Vec<LedgerOperation>) -> Vec<LedgerReply>;
    /// Returns the calls whose host died after sending them, or whose response was lost, oldest first.
    ///
    /// They can be settled or failed like any other call.
    fn unknowns(&self) -> Result<Vec<UnknownCall>, LedgerError>;
    /// Returns the usage since a time in milliseconds, one row for each name.
    fn usage(&self, by: UsageGrouping, since_ms: i64) -> Result<Vec<UsageRow>, LedgerError>;

    /// Submits a [`LedgerOperation::Hold`].
    fn hold(&self, hold: CallHold) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Hold(Box::new(hold))]))
    }
    /// Submits a [`LedgerOperation::Adjust`].
    fn adjust(&self, call: CallId, change: HoldChange) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Adjust(call, change)]))
    }
    /// Submits a [`LedgerOperation::Advance`].
    fn advance(&self, call: CallId, progress: CallProgress) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Advance(call, progress)]))
    }
    /// Submits a [`LedgerOperation::Settle`].
    fn settle(&self, call: CallId, charge: CallCharge) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Settle(call, charge)]))
    }
    /// Submits a [`LedgerOperation::Fail`].
    fn fail(&self, call: CallId, reason: String) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Fail(call, reason)]))
    }
    /// Submits a [`LedgerOperation::Resolve`].
    fn resolve(&self, call: CallId, resolution: Resolution) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Resolve(call, resolution)]))
    }
}

/// The result of an operation, available when the operation is durable. Dropping the reply does not undo the operation.
#[must_use = "the operation is durable only after its reply"]
pub struct LedgerReply(ReplyState);

enum ReplyState {
    Ready(OperationResult),
    Pending(oneshot::Receiver<OperationResult>),
}

/// The result of one operation.
pub(super) type OperationResult = Result<(), LedgerError>;

impl LedgerReply {
    pub(super) fn ready(result: OperationResult) -> Self {
        Self(ReplyState::Ready(result))
    }

    /// Returns the reply of a batch with one operation.
    fn only(mut replies: Vec<Self>) -> Self {
        replies.pop().unwrap_or(Self::ready(Err(LedgerError::Stopped)))
    }

    pub(super) fn pending() -> (oneshot::Sender<OperationResult>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(ReplyState::Pending(receiver)))
    }

    /// Returns the result if it is available without waiting, else the reply itself.
    pub fn at_once(self) -> Result<Result<(), LedgerError>, Self> {
        match self.0 {
            ReplyState::Ready(result) => Ok(result),
            pending @ ReplyState::Pending(_) => Err(Self(pending)),
        }
    }

    /// Waits for the result. Blocks the thread, so it must not be called from an async task.
    pub fn wait(self) -> Result<(), LedgerError> {
        match self.0 {
            ReplyState::Ready(result) => result,
            ReplyState::Pending(receiver) => receiver.blocking_recv().unwrap_or(Err(LedgerError::Stopped)),
        }
    }
}

impl Future for LedgerReply {
    type Output = Result<(), LedgerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            ReplyState::Ready(result) => Poll::Ready(result.clone()),
            ReplyState::Pending(receiver) => {
                Pin::new(receiver).poll(context).map(|result| result.unwrap_or(Err(LedgerError::Stopped)))
            }
        }
    }
}
