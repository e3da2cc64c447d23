//! The record of one call: opened before it is sent, ended exactly once.
//!
//! A call that was opened always gets its ending, also when the task that made it is gone.

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use protocol::{BodyRef, CallId, Draft, EventBody, LlmCall, ModelRequest, ModelResponse, TurnId, UpstreamError};
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
        let (done, written) = oneshot::channel();
        let record_tasks = tasks.clone();
        tasks.spawn_blocking(move || {
            let result = open.write_request(path, ask.stream, &body).inspect_err(|_| open.give_back());
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

    /// Records the end and settles the call. The receiver is told once both are done; the disk is waited for
    /// after that.
    pub(crate) fn end(mut self, ending: Ending) -> oneshot::Receiver<()> {
        let (done, written) = oneshot::channel();
        if let Some(open) = self.open.take() {
            self.tasks.spawn_blocking(move || {
                let outcome = open.outcome(&ending);
                open.write_ending(ending, &outcome);
                if let Err(error) = open.hold.close(&outcome).wait() {
                    tracing::error!(error = describe(&error), call = %open.call, "the end of a call is not in the ledger");
                }
                // The client may have left; the record was for us.
                let _ = done.send(());
                if let Err(error) = open.identity.journal.sync() {
                    tracing::error!(%error, call = %open.call, "the record of a call may be lost in a power failure");
                }
            });
        }
        written
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let failure = Some(UpstreamFailure::SessionEnded.to_string());
            let ending = Ending { status: 0, answer: None, failure, reached: true };
            let outcome = open.outcome(&ending);
            open.write_ending(ending, &outcome);
            // This may be a thread that must not wait; the ledger takes the step all the same.
            drop(open.hold.close(&outcome));
        }
    }
}

impl OpenCall {
    fn write_request(&self, path: String, stream: bool, body: &[u8]) -> Result<(), Refusal> {
        let body = self.keep(body).map_err(|error| {
            tracing::error!(%error, "cannot keep the body of a request");
            Refusal::NotRecorded
        })?;
        let model = Some(self.model.clone());
        let request = ModelRequest { call_id: self.call.clone(), path, model, stream, body };
        self.identity.journal.append(self.draft(self.endpoint.dialect().request_event(request)))?;
        Ok(())
    }

    /// The request could not be recorded, so it is not sent and costs nothing.
    fn give_back(&self) {
        if let Err(error) = self.hold.close(&Outcome::Failed(Refusal::NotRecorded.to_string())).wait() {
            tracing::error!(error = describe(&error), call = %self.call, "a hold could not be given back");
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
        let (reading, ttft) = match ending.answer {
            Some(answer) => (self.write_answer(ending.status, &answer)?, answer.ttft),
            None => (Reading::default(), Duration::ZERO),
        };
        if self.endpoint.is_charged() {
            self.identity.journal.append(self.draft(EventBody::LlmCall(LlmCall {
                call_id: self.call.clone(),
                model: self.model.clone(),
                model_answered: reading.model,
                upstream: self.identity.upstream.name().to_owned(),
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
            body: self.keep(&answer.body)?,
        };
        self.identity.journal.append(self.draft(self.endpoint.dialect().response_event(response)))?;
        Ok(answer.reading.clone())
    }

    /// Keeps of a body what is to be kept of it.
    fn keep(&self, bytes: &[u8]) -> std::io::Result<BodyRef> {
        self.identity.limits.keep.put(&*self.identity.bodies, bytes)
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
