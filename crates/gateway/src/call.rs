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
//! A call passes these files, in this order:
//!
//! 1. `service.rs` authenticates the client and reads the body of the request.
//! 2. `call/handler.rs` checks the policy, then drives the call from hold to response.
//! 3. `request_fields.rs` reads the model and the upper bound of the usage from the body.
//! 4. `call/billing.rs` makes the ledger operations: hold, settle, fail.
//! 5. `call.rs` (this file) changes the state and makes the events for the journal.
//! 6. `call/batch_writer.rs` writes ledger operations and events, those of one tick together.
//! 7. `call/tee.rs` forwards the response to the client and stores a copy.
//! 8. `meter.rs` reads the usage from the response while it passes.
//! 9. `call/outcome.rs` decides how the end of the call is billed.
//!
//! Not here: the service that answers, which is behind the port `upstream.rs`.

mod batch_writer;
mod billing;
mod handler;
mod outcome;
mod tee;

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use base::error_chain;
use bytes::Bytes;
use protocol::{BodyRef, CallId, EventBody, EventDraft, LlmCall, ModelRequest, ModelResponse, UpstreamError};
use store::{BodyKind, LedgerOperation};
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

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
pub(crate) use outcome::{CallFacts, CallOutcome};
pub(crate) use tee::Tee;

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
    /// The response has been arriving for a while, and the ledger says so.
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
    /// Holds a call in the ledger and records its request. Returns when both are written; only then may it be sent.
    ///
    /// Fails if a budget does not allow the call, or if the ledger or the journal cannot be written.
    async fn hold(
        context: &ConnectionContext,
        identity: Arc<GatewayIdentity>,
        fields: RequestFields,
        request: &UpstreamRequest,
    ) -> Result<Self, CallRefusal> {
        let (bill, hold) = context.billing.hold(&identity, request.endpoint, &fields, &request.call)?;
        let tasks = context.tasks.clone();
        let mut call = Self {
            id: request.call.clone(),
            state: CallState::New,
            turn: identity.turn.join(),
            identity,
            bill,
            endpoint: request.endpoint,
            model: fields.model,
            started: Instant::now(),
            _in_flight: (tasks.writer().begin_call(), tasks.token()),
            tasks,
        };
        if let Err(refusal) = call.write_request(hold, fields.stream, request).await {
            if call.state == CallState::Held {
                // It was not recorded, so it is not sent and costs nothing.
                call.settle(CallOutcome::Failed(refusal.to_string())).await;
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
        let outcome = end.outcome(self.bill.is_free());
        let entry = self.journal_entry(self.end_events(end, body, &outcome));
        self.state = CallState::Recorded;
        if let Err(error) = self.tasks.writer().submit(WriteOperation::Record(entry)).await {
            tracing::error!(error = error_chain(&error), call = %self.id, "cannot record the end of a call");
        }
        self.tasks.schedule_sync(&self.identity);
        self.settle(outcome).await;
    }

    /// Closes the call in the ledger.
    async fn settle(&mut self, outcome: CallOutcome) {
        let settlement = self.bill.settlement(&outcome);
        self.state = CallState::Ended(outcome);
        if let Err(error) = self.tasks.writer().submit(WriteOperation::Settle(settlement)).await {
            tracing::error!(error = error_chain(&error), call = %self.id, "cannot write the end of a call to the ledger");
        }
        tracing::debug!(call = %self.id, state = ?self.state, "the call ended");
    }

    /// Records and settles a dropped call without waiting for the disk.
    fn give_up(&self) {
        let end = CallEnd {
            status: 0,
            response: None,
            failure: Some(UpstreamFailure::SessionEnded.to_string()),
            reached_upstream: true,
            duration: self.elapsed(),
        };
        let outcome = end.outcome(self.bill.is_free());
        if let Err(error) = self.identity.journal.store(&self.end_events(end, None, &outcome)) {
            tracing::error!(error = error_chain(&error), call = %self.id, "cannot record the end of a call");
        }
        self.bill.settle_now(&outcome);
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

    fn request_entry(&self, stream: bool, request: &UpstreamRequest, body: BodyRef) -> JournalEntry {
        let request = ModelRequest {
            call_id: self.id.clone(),
            path: format!("{} {}", request.method, request.path_and_query),
            model: Some(self.model.clone()),
            stream,
            body,
        };
        self.journal_entry(vec![self.draft(self.endpoint.dialect().request_event(request))])
    }

    /// Returns the events that record the end of the call. `body` refers to the stored response.
    fn end_events(&self, end: CallEnd, body: Option<BodyRef>, outcome: &CallOutcome) -> Vec<EventDraft> {
        let CallEnd { status, response, failure, duration, .. } = end;
        let mut events = Vec::with_capacity(3);
        if let Some(message) = failure {
            let status = response.is_some().then_some(status);
            let error = UpstreamError { call_id: self.id.clone(), status, message };
            events.push(self.draft(EventBody::UpstreamError(error)));
        }
        if let (Some(response), Some(body)) = (&response, body) {
            let response = ModelResponse {
                call_id: self.id.clone(),
                status,
                stream: response.stream,
                usage: response.reading.usage,
                stop_reason: response.reading.stop_reason.clone(),
                body,
            };
            events.push(self.draft(self.endpoint.dialect().response_event(response)));
        }
        if self.endpoint.is_charged() {
            events.push(self.draft(EventBody::LlmCall(self.llm_call(status, response, duration, outcome))));
        }
        events
    }

    fn llm_call(
        &self,
        status: u16,
        response: Option<ReceivedResponse>,
        duration: Duration,
        outcome: &CallOutcome,
    ) -> LlmCall {
        let (reading, time_to_first_byte, upstream_call_id) = match response {
            Some(response) => (response.reading, response.time_to_first_byte, response.upstream_call_id),
            None => (MeterReading::default(), Duration::ZERO, None),
        };
        let costs_nothing = matches!(outcome, CallOutcome::Failed(_));
        LlmCall {
            call_id: self.id.clone(),
            model: self.model.clone(),
            model_answered: reading.model,
            upstream: self.identity.upstream.name().to_owned(),
            upstream_call_id,
            usage: reading.usage,
            cost_picos: if costs_nothing { 0 } else { self.bill.cost_picos(&reading.usage) },
            status,
            ttft_micros: micros(time_to_first_byte),
            duration_micros: micros(duration),
            stop_reason: reading.stop_reason,
        }
    }

    fn journal_entry(&self, drafts: Vec<EventDraft>) -> JournalEntry {
        JournalEntry { journal: self.identity.journal.clone(), drafts }
    }

    fn draft(&self, body: EventBody) -> EventDraft {
        let turn_id = self.turn.as_ref().map(|guard| guard.turn().clone());
        EventDraft { turn_id, ..EventDraft::daemon(body) }
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
            usage: response.map(|response| response.reading.usage).unwrap_or_default(),
            reached_upstream: self.reached_upstream,
            free,
        })
    }
}

fn not_stored(error: io::Error) -> CallRefusal {
    tracing::error!(%error, "cannot store a request body");
    CallRefusal::NotRecorded
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
