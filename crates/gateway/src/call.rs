//! One model call, from its hold in the ledger to its settlement.
//!
//! ```text
//! Held → Sent → Streaming → Recorded → Ended: settled, failed or unknown
//! ```
//!
//! [`ModelCall`] is this state machine and [`CallOutcome`] its result. A call is held and its request recorded before
//! it is sent. Its end is recorded before it is settled. A call that is dropped after it was sent records itself as
//! given up.
//!
//! A call passes these main files, in this order:
//!
//! 1. `service.rs` authenticates the client and reads the body of the request.
//! 2. `call/handler.rs` checks the policy, then drives the call from hold to response.
//! 3. `request_fields.rs` reads the model and the upper bound of the usage from the body.
//! 4. `call/billing.rs` makes the ledger operations: hold, settle, fail. `call/hold_plan.rs` has the parts of a hold.
//! 5. `call/hold_queue.rs` lets a call wait for money that other calls hold.
//! 6. `call.rs` (this file) changes the state, and `call/events.rs` makes the events for the journal.
//! 7. `call/batch_writer.rs` writes ledger operations and events, those of one tick together.
//! 8. `call/send_progress.rs` notes whether the request may have left.
//! 9. `call/tee.rs` forwards the response to the client; `call/metered_body.rs` meters it and stores a copy.
//! 10. `meter.rs` reads the usage from the response while it passes, and `call/growth.rs` lets the hold grow ahead of it.
//! 11. `call/outcome.rs` decides how the end of the call is billed.
//!
//! A call that the gateway itself cancels, because its turn was interrupted, its session ended or its hold cannot grow,
//! is charged for the most that it can have cost until then.
//!
//! Not here: the upstream, which is behind the port `upstream.rs`, and helpers such as `request_body.rs` and `headers.rs`.

mod batch_writer;
mod billing;
mod events;
mod growth;
mod handler;
mod hold_plan;
mod hold_queue;
mod metered_body;
mod outcome;
mod send_progress;
mod tee;

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use base::error_chain;
use bytes::Bytes;
use protocol::{BodyRef, CallId, Usage};
use store::{BodyKind, LedgerOperation, StorageExceeded};
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};

use crate::{
    attachment::AttachmentTasks,
    endpoint::ModelEndpoint,
    identity::{GatewayIdentity, TurnGuard},
    meter::MeterReading,
    refusal::CallRefusal,
    request_fields::RequestFields,
    service::ConnectionContext,
    upstream::{UpstreamFailure, UpstreamRequest},
};

use batch_writer::{InFlightGuard, JournalEntry, WriteOperation};
use billing::CallBill;

pub(crate) use batch_writer::{BatchWriter, WriteError};
pub(crate) use billing::Billing;
pub(crate) use handler::CallHandler;
pub(crate) use hold_plan::HoldPlan;
pub(crate) use outcome::{CallFacts, CallOutcome};
pub use send_progress::SendProgress;
pub(crate) use tee::Tee;

/// After an interrupt, the client ends its calls itself within this time. Otherwise the gateway does.
const INTERRUPT_GRACE: Duration = Duration::from_secs(1);

/// A call that is held in the ledger, or about to be.
///
/// Dropped in the state `Sent` or `Streaming`, it records itself as given up.
struct ModelCall {
    id: CallId,
    state: CallState,
    identity: Arc<GatewayIdentity>,
    tasks: AttachmentTasks,
    bill: CallBill,
    endpoint: ModelEndpoint,
    model: String,
    started: Instant,
    /// The turn ends only after its calls are recorded.
    turn: Option<TurnGuard>,
    /// Counts the call for its worker, and keeps its attachment open until the call is recorded.
    _in_flight: (InFlightGuard, TaskTrackerToken),
}

/// How far a call has come. Each state is entered once, in this order.
#[derive(Debug, PartialEq, Eq)]
enum CallState {
    /// Waits for the ledger. Nothing was written.
    New,
    /// Held in the ledger. The request has not left.
    Held,
    /// The request is recorded and may have reached the upstream.
    Sent,
    /// The response has been arriving for a while, and the ledger has the state `streaming`.
    Streaming,
    /// The end is handed to the journal. A dropped call writes nothing from here on.
    Recorded,
    /// The ledger operation that closes the call was submitted.
    Ended(CallOutcome),
}

/// How a call ended.
struct CallEnd {
    /// The HTTP status that the client got.
    status: u16,
    /// The response, as far as it arrived. `None` if the upstream sent none.
    response: Option<ReceivedResponse>,
    /// The error on the side of the upstream.
    failure: Option<String>,
    /// Whether the request may have reached the upstream.
    reached_upstream: bool,
    /// The most that a call which the gateway cancelled can have used.
    estimate: Option<Usage>,
    duration: Duration,
}

/// A response, as far as it arrived.
struct ReceivedResponse {
    body: Bytes,
    stream: bool,
    reading: MeterReading,
    time_to_first_byte: Duration,
    /// The id of the call at a proxy behind the gateway.
    upstream_call_id: Option<String>,
}

impl ModelCall {
    /// Holds a call in the ledger and records its request. Returns when both are written; the call must not be sent before.
    ///
    /// Waits for a short time if the budget is only held by other calls; `waits` is set meanwhile. Fails if a budget
    /// does not allow the call, or if the ledger or the journal cannot be written.
    async fn hold(
        context: &ConnectionContext,
        identity: Arc<GatewayIdentity>,
        fields: RequestFields,
        request: &UpstreamRequest,
        waits: &Arc<AtomicBool>,
    ) -> Result<Self, CallRefusal> {
        let mut place = context.billing.queue.place(identity.session.clone(), identity.limits.held_wait, waits.clone());
        let mut in_time = place.wait_for_turn().await;
        loop {
            let held = Self::try_hold(context, identity.clone(), &fields, request).await;
            match held {
                Err(CallRefusal::BudgetSpent(exceeded)) if hold_queue::is_only_held(&exceeded) => {
                    if !in_time || context.tasks.closing().is_cancelled() {
                        return Err(CallRefusal::BudgetHeld(exceeded));
                    }
                }
                held => return held,
            }
            in_time = place.wait_for_money().await;
        }
    }

    async fn try_hold(
        context: &ConnectionContext,
        identity: Arc<GatewayIdentity>,
        fields: &RequestFields,
        request: &UpstreamRequest,
    ) -> Result<Self, CallRefusal> {
        let (bill, hold) = context.billing.hold(&identity, request.endpoint, fields, &request.call)?;
        let tasks = context.tasks.clone();
        let mut call = Self {
            id: request.call.clone(),
            state: CallState::New,
            turn: identity.turn.join(),
            identity,
            bill,
            endpoint: request.endpoint,
            model: fields.model.clone(),
            started: Instant::now(),
            _in_flight: (tasks.writer().begin_call(), tasks.token()),
            tasks,
        };
        if let Err(refusal) = call.write_request(hold, fields.stream, request).await {
            if call.state == CallState::Held {
                // The request was not recorded, so it is not sent and costs nothing.
                call.settle(CallOutcome::Failed(refusal.to_string()), 0, false).await;
            }
            return Err(refusal);
        }
        Ok(call)
    }

    /// Notes that the request is about to leave.
    fn mark_sent(&mut self) {
        self.state = CallState::Sent;
    }

    /// Notes in the ledger, once, that the response has been arriving for a while.
    fn mark_streaming(&mut self) {
        if self.state == CallState::Sent {
            self.state = CallState::Streaming;
            self.bill.mark_streaming();
        }
    }

    /// Returns the time since the call was made.
    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Records the end of the call, then settles it. Returns when both are written.
    async fn finish(mut self, mut end: CallEnd) {
        let body = match &mut end.response {
            Some(response) => {
                let body = std::mem::take(&mut response.body);
                self.store_body(BodyKind::Response, body)
                    .await
                    .inspect_err(|error| tracing::error!(%error, call = %self.id, "cannot store the response body"))
                    .ok()
            }
            None => None,
        };
        let (outcome, cost_picos) = (end.outcome(self.bill.is_free()), self.cost_picos(&end));
        let estimated = end.estimate.is_some() && !self.bill.is_free();
        let entry = self.journal_entry(self.end_events(end, body, &outcome, cost_picos));
        self.state = CallState::Recorded;
        if let Err(error) = self.tasks.writer().submit(WriteOperation::Record(entry)).await {
            tracing::error!(error = error_chain(&error), call = %self.id, "cannot record the end of a call");
        }
        self.tasks.schedule_sync(&self.identity);
        self.settle(outcome, cost_picos, estimated).await;
    }

    /// Closes the call in the ledger.
    async fn settle(&mut self, outcome: CallOutcome, cost_picos: i64, estimated: bool) {
        let settlement = self.bill.settlement(&outcome, cost_picos, estimated);
        self.state = CallState::Ended(outcome);
        if let Err(error) = self.tasks.writer().submit(WriteOperation::Settle(settlement)).await {
            tracing::error!(error = error_chain(&error), call = %self.id, "cannot write the end of a call to the ledger");
        }
        self.bill.notify_queue();
        tracing::debug!(call = %self.id, state = ?self.state, "the call ended");
    }

    /// Returns the cost of a call that ended like this, if it is charged.
    fn cost_picos(&self, end: &CallEnd) -> i64 {
        match (&end.response, end.estimate) {
            (Some(response), _) => self.bill.cost_picos(&response.reading),
            (None, Some(usage)) => self.bill.cost_picos(&MeterReading { usage, ..MeterReading::default() }),
            (None, None) => 0,
        }
    }

    /// Returns the most that the call can have used if it is cancelled now.
    fn cancelled_usage(&self, reported: Usage, shown_tokens: u64) -> Usage {
        self.bill.plan().cancelled_usage(reported, shown_tokens, self.elapsed())
    }

    /// Returns the token that is cancelled when the turn of the call is interrupted.
    fn interrupt_token(&self) -> CancellationToken {
        self.turn.as_ref().map(|turn| turn.interrupted().clone()).unwrap_or_default()
    }

    /// Ready after the turn of the call was interrupted, and the client had time to end the call itself.
    fn interrupted(&self) -> impl Future<Output = ()> + Send + use<> {
        let interrupted = self.interrupt_token();
        async move {
            interrupted.cancelled().await;
            tokio::time::sleep(INTERRUPT_GRACE).await;
        }
    }

    /// Records and settles a dropped call without waiting for the disk.
    fn give_up(&self) {
        let end = CallEnd {
            status: 0,
            response: None,
            failure: Some(UpstreamFailure::SessionEnded.to_string()),
            reached_upstream: true,
            estimate: None,
            duration: self.elapsed(),
        };
        let outcome = end.outcome(self.bill.is_free());
        if let Err(error) = self.identity.journal.store(&self.end_events(end, None, &outcome, 0)) {
            tracing::error!(error = error_chain(&error), call = %self.id, "cannot record the end of a call");
        }
        self.bill.settle_now(&outcome, 0);
    }

    /// Submits the hold and the event of the request.
    async fn write_request(
        &mut self,
        hold: LedgerOperation,
        stream: bool,
        request: &UpstreamRequest,
    ) -> Result<(), CallRefusal> {
        let (kind, body) = (BodyKind::Request, request.body.clone());
        if self.identity.bodies.is_short(kind, body.len()) {
            let body = self.identity.store_body(kind, body).map_err(not_stored)?;
            let entry = self.request_entry(stream, request, body);
            return self.submit_hold(hold, Some(entry)).await;
        }
        // A long body is stored only for a call that the budgets allow.
        self.submit_hold(hold, None).await?;
        let body = self.store_body(kind, body).await.map_err(not_stored)?;
        let entry = self.request_entry(stream, request, body);
        Ok(self.tasks.writer().submit(WriteOperation::Record(entry)).await?)
    }

    async fn submit_hold(&mut self, hold: LedgerOperation, entry: Option<JournalEntry>) -> Result<(), CallRefusal> {
        let written = self.tasks.writer().submit(WriteOperation::Hold { hold, entry }).await;
        if !matches!(written, Err(WriteError::Ledger(_))) {
            self.state = CallState::Held;
        }
        Ok(written?)
    }

    /// Stores a body as far as the retention rules allow, and returns its reference.
    ///
    /// The worker stores a short body itself. For a long one it may have to create a file, which on a busy file system
    /// takes longer than many calls, so another thread does that.
    async fn store_body(&self, kind: BodyKind, bytes: Bytes) -> io::Result<BodyRef> {
        if self.identity.bodies.is_short(kind, bytes.len()) {
            return self.identity.store_body(kind, bytes);
        }
        let (sender, stored) = oneshot::channel();
        let identity = self.identity.clone();
        self.tasks.spawn_blocking(move || {
            // Without a receiver the worker has shut down, and nothing can be done with the reference.
            let _ = sender.send(identity.store_body(kind, bytes));
        });
        stored.await.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()))
    }
}

impl Drop for ModelCall {
    fn drop(&mut self) {
        // A call that was not sent has nothing to record. After a restart its hold is released, because the journal
        // has no request for it.
        if matches!(self.state, CallState::Sent | CallState::Streaming) {
            self.give_up();
        }
    }
}

impl CallEnd {
    fn outcome(&self, free: bool) -> CallOutcome {
        let response = self.response.as_ref();
        CallOutcome::decide(&CallFacts {
            response_status: response.map(|_| self.status),
            failure: self.failure.as_deref(),
            usage: self.estimate.or(response.map(|response| response.reading.usage)).unwrap_or_default(),
            estimated: self.estimate.is_some(),
            reached_upstream: self.reached_upstream,
            free,
        })
    }
}

fn not_stored(error: io::Error) -> CallRefusal {
    if let Some(exceeded) = StorageExceeded::cause_of(&error) {
        return CallRefusal::StorageFull(exceeded);
    }
    tracing::error!(%error, "cannot store a request body");
    CallRefusal::NotRecorded
}

#[cfg(test)]
mod tests;
