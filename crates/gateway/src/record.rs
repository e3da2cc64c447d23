//! The record of one call: opened before it is sent, ended exactly once.
//!
//! A call that was opened always gets its ending, also when the task that made it is gone.

use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use protocol::{BodyRef, CallId, Draft, EventBody, LlmCall, ModelRequest, ModelResponse, TurnId, UpstreamError};
use store::{BodyKind, LedgerError, Reply};
use tokio::sync::oneshot;

use crate::{
    ask::Ask,
    endpoint::Endpoint,
    identity::Identity,
    meter::Reading,
    outcome::{End, Outcome},
    refusal::Refusal,
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

/// The end of a call, being recorded.
pub(crate) enum Recorded {
    Already,
    Soon(oneshot::Receiver<()>),
}

impl Future for Recorded {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut *self {
            Self::Already => Poll::Ready(()),
            // An error means that the record failed, which was logged where it happened.
            Self::Soon(written) => Pin::new(written).poll(context).map(|_| ()),
        }
    }
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
    pub(crate) body: Vec<u8>,
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
    turn: Option<TurnId>,
    endpoint: Endpoint,
    model: String,
    started: Instant,
}

impl CallRecord {
    /// Records the request. Returns when it is written: only then may the call be sent.
    pub(crate) async fn open(
        identity: Arc<Identity>,
        tasks: Tasks,
        hold: Hold,
        ask: Ask,
        request: &UpstreamRequest,
    ) -> Result<Self, Refusal> {
        let turn = identity.turn.get();
        let (call, endpoint) = (request.call.clone(), request.endpoint);
        let open = OpenCall { identity, hold, call, turn, endpoint, model: ask.model, started: Instant::now() };
        let path = format!("{} {}", request.method, request.path_and_query);
        let body = request.body.clone();
        if open.is_short(BodyKind::Request, body.len()) {
            if let Err(refusal) = open.write_request(path, ask.stream, &body) {
                open.tell_given_back(open.give_back().await);
                return Err(refusal);
            }
            return Ok(Self { tasks, open: Some(open) });
        }
        let (done, written) = oneshot::channel();
        let record_tasks = tasks.clone();
        tasks.spawn_blocking(move || {
            let result = open.write_request(path, ask.stream, &body);
            let result = result.inspect_err(|_| open.tell_given_back(open.give_back().wait()));
            // Where the caller is gone, the record is dropped here and ends the call by itself.
            let _ = done.send(result.map(|()| Self { tasks: record_tasks, open: Some(open) }));
        });
        written.await.map_err(|_| Refusal::NotRecorded)?
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
    pub(crate) fn end(mut self, ending: Ending) -> Recorded {
        let Some(open) = self.open.take() else { return Recorded::Already };
        let (done, written) = oneshot::channel();
        let tasks = self.tasks.clone();
        if ending.answer.as_ref().is_none_or(|answer| open.is_short(BodyKind::Answer, answer.body.len())) {
            match open.settle(ending).at_once() {
                Ok(settled) => {
                    open.tell_settled(settled);
                    tasks.sync(&open.identity);
                    return Recorded::Already;
                }
                Err(settled) => self.tasks.spawn(open.tell_when(settled, done, tasks)),
            }
        } else {
            self.tasks.spawn_blocking(move || {
                let settled = open.settle(ending);
                tasks.clone().spawn(open.tell_when(settled, done, tasks));
            });
        }
        Recorded::Soon(written)
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let failure = Some(UpstreamFailure::SessionEnded.to_string());
            let ending = Ending { status: 0, answer: None, failure, reached: true };
            // This may be a thread that must not wait; the ledger takes the step all the same.
            drop(open.settle(ending));
        }
    }
}

impl OpenCall {
    fn write_request(&self, path: String, stream: bool, body: &[u8]) -> Result<(), Refusal> {
        let body = self.keep(BodyKind::Request, body).map_err(|error| {
            tracing::error!(%error, "cannot keep the body of a request");
            Refusal::NotRecorded
        })?;
        let model = Some(self.model.clone());
        let request = ModelRequest { call_id: self.call.clone(), path, model, stream, body };
        self.identity.journal.append(self.draft(self.endpoint.dialect().request_event(request)))?;
        Ok(())
    }

    /// The request could not be recorded, so it is not sent and costs nothing.
    fn give_back(&self) -> Reply {
        self.hold.close(&Outcome::Failed(Refusal::NotRecorded.to_string()))
    }

    fn tell_given_back(&self, outcome: Result<(), LedgerError>) {
        if let Err(error) = outcome {
            tracing::error!(error = describe(&error), call = %self.call, "a hold could not be given back");
        }
    }

    /// Writes the end down, and then asks the ledger to close the call.
    fn settle(&self, ending: Ending) -> Reply {
        let outcome = self.outcome(&ending);
        self.write_ending(ending, &outcome);
        self.hold.close(&outcome)
    }

    /// Says so when the call is closed, and then has its record written to the disk.
    async fn tell_when(self, settled: Reply, done: oneshot::Sender<()>, tasks: Tasks) {
        self.tell_settled(settled.await);
        // The client may have left; the record was for us.
        let _ = done.send(());
        tasks.sync(&self.identity);
    }

    fn tell_settled(&self, settled: Result<(), LedgerError>) {
        if let Err(error) = settled {
            tracing::error!(error = describe(&error), call = %self.call, "the end of a call is not in the ledger");
        }
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

    fn write_ending(&self, ending: Ending, outcome: &Outcome) {
        if let Err(error) = self.try_write_ending(ending, outcome) {
            tracing::error!(error = describe(&*error), call = %self.call, "the end of a call could not be recorded");
        }
    }

    fn try_write_ending(&self, ending: Ending, outcome: &Outcome) -> Result<(), Box<dyn Error>> {
        let duration_micros = micros(self.started.elapsed());
        if let Some(message) = ending.failure {
            let status = ending.answer.is_some().then_some(ending.status);
            let failure = UpstreamError { call_id: self.call.clone(), status, message };
            self.identity.journal.append(self.draft(EventBody::UpstreamError(failure)))?;
        }
        let (reading, ttft, upstream_call_id) = match ending.answer {
            Some(answer) => (self.write_answer(ending.status, &answer)?, answer.ttft, answer.upstream_call_id),
            None => (Reading::default(), Duration::ZERO, None),
        };
        if self.endpoint.is_charged() {
            self.identity.journal.append(self.draft(EventBody::LlmCall(LlmCall {
                call_id: self.call.clone(),
                model: self.model.clone(),
                model_answered: reading.model,
                upstream: self.identity.upstream.name().to_owned(),
                upstream_call_id,
                usage: reading.usage,
                cost_picos: if matches!(outcome, Outcome::Failed(_)) {
                    0
                } else {
                    self.hold.cost_picos(&reading.usage)
                },
                status: ending.status,
                ttft_micros: micros(ttft),
                duration_micros,
                stop_reason: reading.stop_reason,
            })))?;
        }
        Ok(())
    }

    fn write_answer(&self, status: u16, answer: &Answer) -> Result<Reading, Box<dyn Error>> {
        let response = ModelResponse {
            call_id: self.call.clone(),
            status,
            stream: answer.stream,
            usage: answer.reading.usage,
            stop_reason: answer.reading.stop_reason.clone(),
            body: self.keep(BodyKind::Answer, &answer.body)?,
        };
        self.identity.journal.append(self.draft(self.endpoint.dialect().response_event(response)))?;
        Ok(answer.reading.clone())
    }

    /// Keeps of a body what is to be kept of it.
    fn keep(&self, kind: BodyKind, bytes: &[u8]) -> std::io::Result<BodyRef> {
        self.identity.limits.keep.put(&*self.identity.bodies, kind, bytes)
    }

    /// Whether the thread that serves the call may keep a body itself. For a long one a file may have to be made, which
    /// on a busy file system takes longer than many calls.
    fn is_short(&self, kind: BodyKind, bytes: usize) -> bool {
        self.identity.bodies.is_short(kind, bytes)
    }

    fn draft(&self, body: EventBody) -> Draft {
        Draft::daemon(body).in_turn(self.turn.clone())
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
