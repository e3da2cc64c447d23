//! The ledger as a port.

use std::pin::Pin;
use std::task::{Context, Poll};

use protocol::CallId;
use tokio::sync::oneshot;

use super::report::{UnknownCall, UsageGrouping, UsageRow};
use super::{CallCharge, CallHold, CallProgress, LedgerError, Resolution};

/// One step of one call.
#[derive(Debug, Clone)]
pub enum LedgerOperation {
    /// Sets aside what a call may cost at most, if every limit of the hold allows it.
    Hold(Box<CallHold>),
    /// Notes how far a call got.
    Advance(CallId, CallProgress),
    /// Ends a call with what it cost. The same charge a second time changes nothing; another one is refused.
    Settle(CallId, CallCharge),
    /// Ends a call that cost nothing, and says why.
    Fail(CallId, String),
    /// Closes an unknown call on a person's word, and keeps whose word it was.
    Resolve(CallId, Resolution),
}

/// Where calls are held and charged.
///
/// An answer means that the step is as durable as the ledger was asked to be: a call must not be sent before
/// its hold and its [`CallProgress::Sent`] were answered. Limits hold whatever the number of callers. A step that
/// was answered with an error left nothing behind.
pub trait Ledger: Send + Sync {
    /// Takes `steps` in this order, each on its own: one that is refused stops no other. There is a reply for each.
    /// Together they cost little more than one.
    fn submit(&self, steps: Vec<LedgerOperation>) -> Vec<LedgerReply>;
    /// Calls whose host died after they were sent, or whose answer was lost, oldest first. They are settled or
    /// failed like any other.
    fn unknowns(&self) -> Result<Vec<UnknownCall>, LedgerError>;
    /// What was used since a time in milliseconds, one row a name.
    fn usage(&self, by: UsageGrouping, since_ms: i64) -> Result<Vec<UsageRow>, LedgerError>;

    /// [`LedgerOperation::Hold`].
    fn hold(&self, hold: CallHold) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Hold(Box::new(hold))]))
    }
    /// [`LedgerOperation::Advance`].
    fn advance(&self, call: CallId, progress: CallProgress) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Advance(call, progress)]))
    }
    /// [`LedgerOperation::Settle`].
    fn settle(&self, call: CallId, charge: CallCharge) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Settle(call, charge)]))
    }
    /// [`LedgerOperation::Fail`].
    fn fail(&self, call: CallId, reason: String) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Fail(call, reason)]))
    }
    /// [`LedgerOperation::Resolve`].
    fn resolve(&self, call: CallId, resolution: Resolution) -> LedgerReply {
        LedgerReply::only(self.submit(vec![LedgerOperation::Resolve(call, resolution)]))
    }
}

/// An answer that comes when the step is durable. Dropping it does not undo the step.
#[must_use = "the step is durable only once it was answered"]
pub struct LedgerReply(Coming);

enum Coming {
    Here(Answer),
    Later(oneshot::Receiver<Answer>),
}

/// What became of a step.
pub(super) type Answer = Result<(), LedgerError>;

impl LedgerReply {
    /// An answer that is there already.
    pub(super) fn here(answer: Answer) -> Self {
        Self(Coming::Here(answer))
    }

    /// The reply to the only step that was taken.
    fn only(mut replies: Vec<Self>) -> Self {
        replies.pop().unwrap_or(Self::here(Err(LedgerError::Stopped)))
    }

    pub(super) fn later() -> (oneshot::Sender<Answer>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Coming::Later(receiver)))
    }

    /// The answer, where nobody has to wait for it.
    pub fn at_once(self) -> Result<Result<(), LedgerError>, Self> {
        match self.0 {
            Coming::Here(answer) => Ok(answer),
            later @ Coming::Later(_) => Err(Self(later)),
        }
    }

    /// Waits for the answer; for threads, not for async tasks.
    pub fn wait(self) -> Result<(), LedgerError> {
        match self.0 {
            Coming::Here(answer) => answer,
            Coming::Later(receiver) => receiver.blocking_recv().unwrap_or(Err(LedgerError::Stopped)),
        }
    }
}

impl Future for LedgerReply {
    type Output = Result<(), LedgerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Coming::Here(answer) => Poll::Ready(answer.clone()),
            Coming::Later(receiver) => {
                Pin::new(receiver).poll(context).map(|answer| answer.unwrap_or(Err(LedgerError::Stopped)))
            }
        }
    }
}
