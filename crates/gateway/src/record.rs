//! The record of one call: opened before it is sent, ended exactly once.
//!
//! A call that was opened always gets its ending, also when the task that made it is gone.

use std::{
    error::Error,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use protocol::{BodyRef, CallId, Draft, EventBody, LlmCall, ModelRequest, ModelResponse, UpstreamError};
use store::{BodyKind, JournalError};
use tokio::sync::oneshot;

use crate::{
    ask::Ask,
    endpoint::Endpoint,
    identity::{Identity, Part},
    meter::Reading,
    outcome::{End, Outcome},
    refusal::Refusal,
    scribe::Seat,
    tasks::Tasks,
    till::Hold,
    upstream::{UpstreamFailure, UpstreamRequest},
};

/// The open record of a call. Dropped without an ending, it says itself that the call was given up.
pub(crate) struct CallRecord {
    tasks: Tasks,
    /// Taken by the ending.
    open: Option<OpenCall>,
    _seat: Seat,
}

/// How a call ended.
pub(crate) struct Ending {
    /// HTTP status the agent got.
    pub(crate) status: u16,
    /// The answer, as far as it came; none: there was no answer.
    pub(crate) answer: Option<Answer>,
    /// What went wrong on the model's side.
    pub(crate) failure: Option<String>,
    /// Whether the request may have reached the vendor.
    pub(crate) reached: bool,
}

/// An answer, as far as it came.
pub(crate) struct Answer {
    pub(crate) body: Bytes,
    pub(crate) stream: bool,
    pub(crate) reading: Reading,
    pub(crate) ttft: Duration,
    /// What a proxy behind us calls it.
    pub(crate) upstream_call_id: Option<String>,
}

struct OpenCall {
    identity: Arc<Identity>,
    hold: Hold,
    call: CallId,
    part: Option<Part>,
    endpoint: Endpoint,
    model: String,
    started: Instant,
}

impl CallRecord {
    /// Records the request. Returns when it is written: only then may the call be sent.
    pub(crate) async fn open(
        identity: Arc<Identity>,
        tasks: Tasks,
        seat: Seat,
        hold: Hold,
        ask: Ask,
        request: &UpstreamRequest,
    ) -> Result<Self, Refusal> {
        let part = identity.turn.join();
        let (call, endpoint) = (request.call.clone(), request.endpoint);
        let open = OpenCall { identity, hold, call, part, endpoint, model: ask.model, started: Instant::now() };
        let path = format!("{} {}", request.method, request.path_and_query);
        if let Err(refusal) = open.write_request(&tasks, path, ask.stream, request.body.clone()).await {
            // Not recorded, so not sent: it costs nothing.
            open.close(&tasks, &Outcome::Failed(refusal.to_string())).await;
            return Err(refusal);
        }
        Ok(Self { tasks, open: Some(open), _seat: seat })
    }

    /// Time since the call was let through.
    pub(crate) fn elapsed(&self) -> Duration {
        self.open.as_ref().map_or(Duration::ZERO, |open| open.started.elapsed())
    }

    /// Notes that the answer has begun.
    pub(crate) fn streaming(&self) {
        if let Some(open) = &self.open {
            open.hold.streaming();
        }
    }

    /// Records the end and settles the call. The disk is waited for after that.
    pub(crate) async fn end(mut self, ending: Ending) {
        if let Some(open) = self.open.take() {
            open.settle(&self.tasks, ending).await;
            self.tasks.sync(&open.identity);
        }
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let failure = Some(UpstreamFailure::SessionEnded.to_string());
            // This may be a thread that must not wait; the ledger takes the step all the same.
            open.settle_here(Ending { status: 0, answer: None, failure, reached: true });
        }
    }
}

impl OpenCall {
    async fn write_request(&self, tasks: &Tasks, path: String, stream: bool, body: Bytes) -> Result<(), Refusal> {
        let body = self.keep(tasks, BodyKind::Request, body).await.map_err(|error| {
            tracing::error!(%error, "cannot keep the body of a request");
            Refusal::NotRecorded
        })?;
        let model = Some(self.model.clone());
        let request = ModelRequest { call_id: self.call.clone(), path, model, stream, body };
        Ok(tasks.append(&self.identity, vec![self.draft(self.endpoint.dialect().request_event(request))]).await?)
    }

    /// Writes the end down, and then closes the call in the ledger.
    async fn settle(&self, tasks: &Tasks, mut ending: Ending) {
        let (duration, outcome) = (self.started.elapsed(), self.outcome(&ending));
        let body = match &mut ending.answer {
            Some(answer) => {
                let kept = self.keep(tasks, BodyKind::Answer, std::mem::take(&mut answer.body)).await;
                kept.inspect_err(|error| tracing::error!(%error, call = %self.call, "an answer could not be kept")).ok()
            }
            None => None,
        };
        if let Err(error) = tasks.append(&self.identity, self.last_records(ending, body, duration, &outcome)).await {
            self.tell_unwritten(&error);
        }
        self.close(tasks, &outcome).await;
    }

    /// The same for a call that has no answer, and for which nobody waits.
    fn settle_here(&self, ending: Ending) {
        let outcome = self.outcome(&ending);
        let records = self.last_records(ending, None, self.started.elapsed(), &outcome);
        if let Err(error) = self.identity.journal.store(&records) {
            self.tell_unwritten(&error);
        }
        self.hold.close_here(&outcome);
    }

    async fn close(&self, tasks: &Tasks, outcome: &Outcome) {
        if let Err(error) = tasks.step(self.hold.last_step(outcome)).await {
            tracing::error!(error = describe(&error), call = %self.call, "the end of a call is not in the ledger");
        }
    }

    fn tell_unwritten(&self, error: &JournalError) {
        tracing::error!(error = describe(error), call = %self.call, "the end of a call could not be recorded");
    }

    /// What the end means for the bill.
    fn outcome(&self, ending: &Ending) -> Outcome {
        let answer = ending.answer.as_ref();
        let end = End {
            answered: answer.map(|_| ending.status),
            failure: ending.failure.as_deref(),
            usage: answer.map(|answer| answer.reading.usage).unwrap_or_default(),
            reached: ending.reached,
            free: self.hold.is_free(),
        };
        end.outcome()
    }

    /// What is recorded when the call is over; `body` is what was kept of its answer.
    fn last_records(&self, ending: Ending, body: Option<BodyRef>, duration: Duration, outcome: &Outcome) -> Vec<Draft> {
        let Ending { status, answer, failure, .. } = ending;
        let mut records = Vec::with_capacity(3);
        if let Some(message) = failure {
            let status = answer.is_some().then_some(status);
            records.push(EventBody::UpstreamError(UpstreamError { call_id: self.call.clone(), status, message }));
        }
        if let (Some(answer), Some(body)) = (&answer, body) {
            records.push(self.endpoint.dialect().response_event(ModelResponse {
                call_id: self.call.clone(),
                status,
                stream: answer.stream,
                usage: answer.reading.usage,
                stop_reason: answer.reading.stop_reason.clone(),
                body,
            }));
        }
        if self.endpoint.is_charged() {
            records.push(EventBody::LlmCall(self.llm_call(status, answer, duration, outcome)));
        }
        records.into_iter().map(|record| self.draft(record)).collect()
    }

    fn llm_call(&self, status: u16, answer: Option<Answer>, duration: Duration, outcome: &Outcome) -> LlmCall {
        let (reading, ttft, upstream_call_id) = match answer {
            Some(answer) => (answer.reading, answer.ttft, answer.upstream_call_id),
            None => (Reading::default(), Duration::ZERO, None),
        };
        let free = matches!(outcome, Outcome::Failed(_));
        LlmCall {
            call_id: self.call.clone(),
            model: self.model.clone(),
            model_answered: reading.model,
            upstream: self.identity.upstream.name().to_owned(),
            upstream_call_id,
            usage: reading.usage,
            cost_picos: if free { 0 } else { self.hold.cost_picos(&reading.usage) },
            status,
            ttft_micros: micros(ttft),
            duration_micros: micros(duration),
            stop_reason: reading.stop_reason,
        }
    }

    /// Keeps of a body what is to be kept of it.
    ///
    /// The thread that serves the call keeps a short one itself. For a long one a file may have to be made, which on a
    /// busy file system takes longer than many calls.
    async fn keep(&self, tasks: &Tasks, kind: BodyKind, bytes: Bytes) -> io::Result<BodyRef> {
        if self.identity.bodies.is_short(kind, bytes.len()) {
            return self.identity.limits.keep.put(&*self.identity.bodies, kind, &bytes);
        }
        let (done, kept) = oneshot::channel();
        let identity = self.identity.clone();
        tasks.spawn_blocking(move || {
            // The call goes on whoever leaves, so somebody is always there.
            let _ = done.send(identity.limits.keep.put(&*identity.bodies, kind, &bytes));
        });
        kept.await.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()))
    }

    fn draft(&self, body: EventBody) -> Draft {
        Draft::daemon(body).in_turn(self.part.as_ref().map(|part| part.turn.clone()))
    }
}

/// An error and what caused it, in one line.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
