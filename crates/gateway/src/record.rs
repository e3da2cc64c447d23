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
use protocol::{BodyRef, CallId, EventBody, EventDraft, LlmCall, ModelRequest, ModelResponse, UpstreamError};
use store::{BodyKind, JournalError, LedgerError, LedgerOperation, LedgerReply};
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::{
    ask::Ask,
    endpoint::ModelEndpoint,
    identity::{GatewayIdentity, Part},
    meter::Reading,
    outcome::{End, Outcome},
    refusal::Refusal,
    scribe::{Closing, NotOpened, Record, Seat, Written},
    tasks::Tasks,
    till::Hold,
    upstream::{UpstreamFailure, UpstreamRequest},
};

/// The open record of a call. Dropped without an ending, it says itself that the call was given up.
pub(crate) struct CallRecord {
    tasks: Tasks,
    /// Taken by the ending.
    open: Option<OpenCall>,
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
    /// How long it took.
    pub(crate) duration: Duration,
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
    identity: Arc<GatewayIdentity>,
    hold: Hold,
    call: CallId,
    part: Option<Part>,
    endpoint: ModelEndpoint,
    model: String,
    started: Instant,
    /// Its seat on its lane; and its attachment does not end before its calls are on record.
    _place: (Seat, TaskTrackerToken),
}

impl CallRecord {
    /// Holds a call by `step`, and records the request. Returns when both are written: only then may the call be sent.
    pub(crate) async fn open(
        identity: Arc<GatewayIdentity>,
        tasks: Tasks,
        hold: Hold,
        step: LedgerOperation,
        ask: Ask,
        request: &UpstreamRequest,
    ) -> Result<Self, Refusal> {
        let part = identity.turn.join();
        let (call, endpoint) = (request.call.clone(), request.endpoint);
        let (model, started) = (ask.model, Instant::now());
        let place = (tasks.seat(), tasks.token());
        let open = OpenCall { identity, hold, call, part, endpoint, model, started, _place: place };
        match open.begin(&tasks, step, ask.stream, request).await {
            Ok(()) => Ok(Self { tasks, open: Some(open) }),
            Err(Refused::NotHeld(refusal)) => Err(refusal),
            Err(Refused::Held(refusal)) => {
                // Not recorded, so not sent: it costs nothing.
                let outcome = Outcome::Failed(refusal.to_string());
                open.end(&tasks, |open, done| open.closing(Vec::new(), &outcome, done)).await;
                Err(refusal)
            }
        }
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

    /// Whether an answer of so many bytes can be kept by the thread that serves the call.
    pub(crate) fn keeps_here(&self, bytes: usize) -> bool {
        self.open.as_ref().is_some_and(|open| open.identity.bodies.is_short(BodyKind::Response, bytes))
    }

    /// What is to be written at the end of a call whose answer [can be kept here](Self::keeps_here); `done` is told when
    /// it is.
    pub(crate) fn closing(mut self, mut ending: Ending, done: Option<oneshot::Sender<()>>) -> Option<Closing> {
        let (open, tasks) = (self.open.take()?, self.tasks.clone());
        let body = ending.answer.as_mut().and_then(|answer| {
            let body = std::mem::take(&mut answer.body);
            open.kept(open.identity.keep(BodyKind::Response, body))
        });
        Some(open.ended(ending, body, Done { tasks, waiting: done }))
    }

    /// Records the end and settles the call. Returns when both are written.
    pub(crate) async fn end(mut self, mut ending: Ending) {
        let Some(open) = self.open.take() else { return };
        let body = match &mut ending.answer {
            Some(answer) => {
                let body = std::mem::take(&mut answer.body);
                open.kept(open.keep(&self.tasks, BodyKind::Response, body).await)
            }
            None => None,
        };
        open.end(&self.tasks, |open, done| open.ended(ending, body, done)).await;
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let (failure, duration) = (Some(UpstreamFailure::SessionEnded.to_string()), open.started.elapsed());
            // This may be a thread that must not wait; the ledger takes the step all the same.
            open.settle_here(Ending { status: 0, answer: None, failure, reached: true, duration });
        }
    }
}

/// Why a call is not sent.
enum Refused {
    NotHeld(Refusal),
    /// It is held, and must be let go.
    Held(Refusal),
}

/// Who is told when a call is closed.
struct Done {
    tasks: Tasks,
    waiting: Option<oneshot::Sender<()>>,
}

impl OpenCall {
    async fn begin(
        &self,
        tasks: &Tasks,
        step: LedgerOperation,
        stream: bool,
        request: &UpstreamRequest,
    ) -> Result<(), Refused> {
        let path = format!("{} {}", request.method, request.path_and_query);
        let record = |body: io::Result<BodyRef>| {
            let body = body.map_err(|error| {
                tracing::error!(%error, "cannot keep the body of a request");
                Refusal::NotRecorded
            })?;
            let request =
                ModelRequest { call_id: self.call.clone(), path, model: Some(self.model.clone()), stream, body };
            Ok(self.record(vec![self.draft(self.endpoint.dialect().request_event(request))]))
        };
        let (kind, body) = (BodyKind::Request, request.body.clone());
        let held = |error| match error {
            NotOpened::Refused(error) => Refused::NotHeld(error.into()),
            NotOpened::Unrecorded(error) => Refused::Held(error.into()),
        };
        if self.identity.bodies.is_short(kind, body.len()) {
            let body = self.identity.keep(kind, body);
            let record = record(body).map_err(Refused::NotHeld)?;
            return tasks.open(step, Some(record)).await.map_err(held);
        }
        tasks.open(step, None).await.map_err(held)?;
        let record = record(self.keep(tasks, kind, body).await).map_err(Refused::Held)?;
        tasks.append(record).await.map_err(|error| Refused::Held(error.into()))
    }

    /// Writes down what `closing` makes of the call, and returns when it is written.
    async fn end(self, tasks: &Tasks, closing: impl FnOnce(Self, Done) -> Closing + Send) {
        let (waiting, written) = oneshot::channel();
        let closing = closing(self, Done { tasks: tasks.clone(), waiting: Some(waiting) });
        tasks.end(Box::new(move || Some(closing)));
        // Where the lane has ended nobody writes it any more: the ledger finds an open call of a host that is gone.
        let _ = written.await;
    }

    /// What is to be written of a call that ended.
    fn ended(self, ending: Ending, body: Option<BodyRef>, done: Done) -> Closing {
        let outcome = self.outcome(&ending);
        let records = self.last_records(ending, body, &outcome);
        self.closing(records, &outcome, done)
    }

    fn closing(self, records: Vec<EventDraft>, outcome: &Outcome, done: Done) -> Closing {
        let (record, step) = (self.record(records), self.hold.last_step(outcome));
        Closing { record, step, then: Box::new(move |written, reply| self.closed(written, reply, done)) }
    }

    /// It was written, as far as it could be. The disk is waited for after that.
    fn closed(self, written: Written, reply: LedgerReply, done: Done) {
        if let Err(error) = written {
            self.tell_unwritten(&error);
        }
        done.tasks.sync(&self.identity);
        match reply.at_once() {
            Ok(settled) => self.settled(settled, done),
            Err(later) => done.tasks.clone().spawn(async move { self.settled(later.await, done) }),
        }
    }

    fn settled(self, settled: Result<(), LedgerError>, done: Done) {
        if let Err(error) = settled {
            tracing::error!(error = describe(&error), call = %self.call, "the end of a call is not in the ledger");
        }
        if let Some(waiting) = done.waiting {
            // Who no longer waits has left.
            let _ = waiting.send(());
        }
    }

    /// Ends a call that has no answer, and for which nobody waits.
    fn settle_here(&self, ending: Ending) {
        let outcome = self.outcome(&ending);
        let records = self.last_records(ending, None, &outcome);
        if let Err(error) = self.identity.journal.store(&records) {
            self.tell_unwritten(&error);
        }
        self.hold.close_here(&outcome);
    }

    /// What was kept of an answer, if anything could be.
    fn kept(&self, body: io::Result<BodyRef>) -> Option<BodyRef> {
        body.inspect_err(|error| tracing::error!(%error, call = %self.call, "an answer could not be kept")).ok()
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
    fn last_records(&self, ending: Ending, body: Option<BodyRef>, outcome: &Outcome) -> Vec<EventDraft> {
        let Ending { status, answer, failure, duration, .. } = ending;
        let mut records = Vec::with_capacity(3);
        if let Some(message) = failure {
            let status = answer.is_some().then_some(status);
            let error = UpstreamError { call_id: self.call.clone(), status, message };
            records.push(self.draft(EventBody::UpstreamError(error)));
        }
        if let (Some(answer), Some(body)) = (&answer, body) {
            let response = ModelResponse {
                call_id: self.call.clone(),
                status,
                stream: answer.stream,
                usage: answer.reading.usage,
                stop_reason: answer.reading.stop_reason.clone(),
                body,
            };
            records.push(self.draft(self.endpoint.dialect().response_event(response)));
        }
        if self.endpoint.is_charged() {
            records.push(self.draft(EventBody::LlmCall(self.llm_call(status, answer, duration, outcome))));
        }
        records
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
            return self.identity.keep(kind, bytes);
        }
        let (done, kept) = oneshot::channel();
        let identity = self.identity.clone();
        tasks.spawn_blocking(move || {
            // The call goes on whoever leaves, so somebody is always there.
            let _ = done.send(identity.keep(kind, bytes));
        });
        kept.await.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()))
    }

    fn record(&self, drafts: Vec<EventDraft>) -> Record {
        Record { journal: self.identity.journal.clone(), drafts }
    }

    fn draft(&self, body: EventBody) -> EventDraft {
        let turn_id = self.part.as_ref().map(|part| part.turn.clone());
        EventDraft { turn_id, ..EventDraft::daemon(body) }
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
