//! The recorded model calls of a session, read from its journal.

use std::collections::HashMap;

use bytes::Bytes;
use http::Method;
use protocol::{BodyRef, CallId, Event, EventBody, ModelRequest, SessionId};
use store::{DataDir, FileBodyStore, JournalReader};

use super::{Interruption, ReplayError};
use crate::{
    endpoint::{ModelEndpoint, Route},
    upstream::UpstreamFailure,
};

/// Number of events per read.
const PAGE_EVENTS: usize = 1_000;

/// Messages of [`UpstreamFailure::SessionEnded`] and [`UpstreamFailure::Abandoned`] in earlier builds.
const EARLIER_NO_MORE_DATA: [&str; 2] =
    ["the session ended before the answer did", "the client left and the rest of the answer was given up"];
/// Message of [`UpstreamFailure::Cut`] in earlier builds.
const EARLIER_CONNECTION_LOST: &str = "the upstream's answer was cut before its end";
/// Starts of the messages of [`UpstreamFailure::Silent`], in this and in earlier builds.
const TIMEOUT_PREFIXES: [&str; 2] = ["timeout: the upstream sent nothing for", "the upstream was silent for"];

/// A recorded call.
pub(super) struct RecordedCall {
    pub(super) call: CallId,
    pub(super) endpoint: ModelEndpoint,
    /// Method and path, as the agent sent them.
    pub(super) path: String,
    pub(super) model: Option<String>,
    pub(super) request: Bytes,
    pub(super) outcome: RecordedOutcome,
}

/// How a recorded call ended.
pub(super) enum RecordedOutcome {
    /// The upstream answered, perhaps incompletely.
    Answer { status: u16, body: Bytes, stream: bool, interruption: Option<Interruption> },
    /// The gateway refused the call.
    Failed { status: u16, message: String },
    /// The client left before an answer arrived.
    Unanswered,
}

/// The events of one call, as far as the journal was read.
struct CallTrace {
    request: ModelRequest,
    answer: Option<(u16, bool, BodyRef)>,
    failure: Option<String>,
    status: Option<u16>,
}

/// Returns the calls of `session` with a known outcome, in the order in which they were made.
pub(super) fn read_calls(directory: &DataDir, session: &SessionId) -> Result<Vec<RecordedCall>, ReplayError> {
    let journal = |source| ReplayError::Journal { session: session.clone(), source };
    let reader = JournalReader::open(directory.journal(session), session.clone()).map_err(journal)?;
    let mut traces = CallTraces::default();
    let mut cursor = 0;
    loop {
        let page = reader.after(cursor, PAGE_EVENTS).map_err(journal)?;
        let Some(last) = page.last() else { break };
        cursor = last.sequence;
        for event in page {
            traces.observe(event);
        }
    }
    let bodies = FileBodyStore::new(directory);
    let get = |body: &BodyRef| match bodies.get(body) {
        Ok(bytes) => Ok(Bytes::from(bytes)),
        Err(source) => Err(ReplayError::Body { session: session.clone(), source }),
    };
    traces.calls.into_iter().filter_map(|trace| trace.into_recorded_call(&get).transpose()).collect()
}

#[derive(Default)]
struct CallTraces {
    calls: Vec<CallTrace>,
    positions: HashMap<CallId, usize>,
}

impl CallTraces {
    fn observe(&mut self, event: Event) {
        match event.draft.body {
            EventBody::AnthropicRequest(request)
            | EventBody::OpenaiRequest(request)
            | EventBody::GeminiRequest(request) => {
                self.positions.insert(request.call_id.clone(), self.calls.len());
                self.calls.push(CallTrace { request, answer: None, failure: None, status: None });
            }
            EventBody::AnthropicResponse(response)
            | EventBody::OpenaiResponse(response)
            | EventBody::GeminiResponse(response) => self.update(&response.call_id, |trace| {
                trace.answer = Some((response.status, response.stream, response.body.clone()));
            }),
            EventBody::UpstreamError(error) => {
                self.update(&error.call_id, |trace| trace.failure = Some(error.message.clone()));
            }
            EventBody::LlmCall(call) => self.update(&call.call_id, |trace| trace.status = Some(call.status)),
            _ => {}
        }
    }

    fn update(&mut self, call: &CallId, change: impl FnOnce(&mut CallTrace)) {
        if let Some(trace) = self.positions.get(call).and_then(|position| self.calls.get_mut(*position)) {
            change(trace);
        }
    }
}

impl CallTrace {
    /// Returns the call with its bodies; `None` if its outcome is unknown or its endpoint is not supported.
    fn into_recorded_call(
        self,
        get: &impl Fn(&BodyRef) -> Result<Bytes, ReplayError>,
    ) -> Result<Option<RecordedCall>, ReplayError> {
        let Some(endpoint) = endpoint(&self.request.path) else { return Ok(None) };
        let outcome = match (&self.answer, &self.failure) {
            (Some((status, stream, body)), failure) => {
                let interruption = failure.as_deref().and_then(interruption_of);
                RecordedOutcome::Answer { status: *status, body: get(body)?, stream: *stream, interruption }
            }
            (None, Some(failure)) if interruption_of(failure) == Some(Interruption::NoMoreData) => {
                RecordedOutcome::Unanswered
            }
            (None, Some(failure)) => {
                RecordedOutcome::Failed { status: self.status.unwrap_or(502), message: failure.clone() }
            }
            (None, None) => return Ok(None),
        };
        let ModelRequest { call_id: call, path, model, body, .. } = self.request;
        Ok(Some(RecordedCall { call, endpoint, path, model, request: get(&body)?, outcome }))
    }
}

fn endpoint(path: &str) -> Option<ModelEndpoint> {
    let (method, path) = path.split_once(' ')?;
    let path = path.split('?').next()?;
    match Route::of(&method.parse::<Method>().ok()?, path) {
        Route::Call(endpoint) => Some(endpoint),
        _ => None,
    }
}

/// Failures after which the gateway itself read no more of an answer.
fn no_more_data() -> [UpstreamFailure; 4] {
    [
        UpstreamFailure::SessionEnded,
        UpstreamFailure::Abandoned,
        UpstreamFailure::AbandonedWithoutRoom,
        UpstreamFailure::Interrupted,
    ]
}

/// Returns how the failure message of a recorded call interrupted its answer; `None` if the answer is complete.
///
/// A journal holds only the message of a failure, so the messages of earlier builds are recognised as well.
fn interruption_of(failure: &str) -> Option<Interruption> {
    let is = |known: UpstreamFailure| failure == known.to_string();
    if no_more_data().into_iter().any(is) || EARLIER_NO_MORE_DATA.contains(&failure) {
        Some(Interruption::NoMoreData)
    } else if is(UpstreamFailure::Cut)
        || is(UpstreamFailure::BudgetExhausted)
        || failure == EARLIER_CONNECTION_LOST
        || TIMEOUT_PREFIXES.iter().any(|prefix| failure.starts_with(prefix))
    {
        Some(Interruption::ConnectionLost)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruptions_in_journals_of_this_and_earlier_builds_are_recognised() {
        for failure in no_more_data() {
            assert_eq!(interruption_of(&failure.to_string()), Some(Interruption::NoMoreData));
        }
        for failure in [UpstreamFailure::Cut, UpstreamFailure::Silent(120)] {
            assert_eq!(interruption_of(&failure.to_string()), Some(Interruption::ConnectionLost));
        }
        let earlier = interruption_of("the client left and the rest of the answer was given up");
        assert_eq!(earlier, Some(Interruption::NoMoreData));
        assert_eq!(interruption_of("the upstream was silent for 120 seconds"), Some(Interruption::ConnectionLost));
        assert_eq!(interruption_of("overloaded_error: Overloaded"), None);
    }
}
