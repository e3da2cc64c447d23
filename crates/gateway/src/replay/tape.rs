//! The model calls of a recorded session, read from its journal.

use std::collections::HashMap;

use bytes::Bytes;
use http::Method;
use protocol::{BodyRef, CallId, Event, EventBody, ModelRequest, SessionId};
use store::{DataDir, FileBodyStore, JournalReader};

use super::{Break, ReplayError};
use crate::{
    endpoint::{ModelEndpoint, Route},
    upstream::UpstreamFailure,
};

/// So many events are read at a time.
const PAGE: usize = 1_000;

/// One recorded call.
pub(super) struct Take {
    pub(super) call: CallId,
    pub(super) endpoint: ModelEndpoint,
    /// Method and path, as the agent sent them.
    pub(super) path: String,
    pub(super) model: Option<String>,
    pub(super) request: Bytes,
    pub(super) end: End,
}

/// How a recorded call ended.
pub(super) enum End {
    /// With an answer, if not with all of it.
    Answer { status: u16, body: Bytes, stream: bool, broken: Option<Break> },
    /// With a refusal of the gateway's own.
    Failed { status: u16, message: String },
    /// Whoever asked was gone before anything came.
    Never,
}

/// What the journal says of a call, as far as it was read.
struct Trace {
    request: ModelRequest,
    answer: Option<(u16, bool, BodyRef)>,
    failure: Option<String>,
    status: Option<u16>,
}

/// Every call of `session` whose end is known, in the order in which they were made.
pub(super) fn read(directory: &DataDir, session: &SessionId) -> Result<Vec<Take>, ReplayError> {
    let journal = |source| ReplayError::Journal { session: session.clone(), source };
    let reader = JournalReader::open(directory.journal(session), session.clone()).map_err(journal)?;
    let mut traces = Traces::default();
    let mut seen = 0;
    loop {
        let page = reader.after(seen, PAGE).map_err(journal)?;
        let Some(last) = page.last() else { break };
        seen = last.sequence;
        for event in page {
            traces.observe(event);
        }
    }
    let bodies = FileBodyStore::new(directory);
    let get = |body: &BodyRef| match bodies.get(body) {
        Ok(bytes) => Ok(Bytes::from(bytes)),
        Err(source) => Err(ReplayError::Body { session: session.clone(), source }),
    };
    traces.calls.into_iter().filter_map(|trace| trace.take(&get).transpose()).collect()
}

#[derive(Default)]
struct Traces {
    calls: Vec<Trace>,
    places: HashMap<CallId, usize>,
}

impl Traces {
    fn observe(&mut self, event: Event) {
        match event.draft.body {
            EventBody::AnthropicRequest(request)
            | EventBody::OpenaiRequest(request)
            | EventBody::GeminiRequest(request) => {
                self.places.insert(request.call_id.clone(), self.calls.len());
                self.calls.push(Trace { request, answer: None, failure: None, status: None });
            }
            EventBody::AnthropicResponse(response)
            | EventBody::OpenaiResponse(response)
            | EventBody::GeminiResponse(response) => self.note(&response.call_id, |trace| {
                trace.answer = Some((response.status, response.stream, response.body.clone()));
            }),
            EventBody::UpstreamError(error) => {
                self.note(&error.call_id, |trace| trace.failure = Some(error.message.clone()));
            }
            EventBody::LlmCall(call) => self.note(&call.call_id, |trace| trace.status = Some(call.status)),
            _ => {}
        }
    }

    fn note(&mut self, call: &CallId, note: impl FnOnce(&mut Trace)) {
        if let Some(trace) = self.places.get(call).and_then(|place| self.calls.get_mut(*place)) {
            note(trace);
        }
    }
}

impl Trace {
    /// The call with its bytes; none: nobody knows how it ended, or it is of an API of a later version.
    fn take(self, get: &impl Fn(&BodyRef) -> Result<Bytes, ReplayError>) -> Result<Option<Take>, ReplayError> {
        let Some(endpoint) = endpoint(&self.request.path) else { return Ok(None) };
        let end = match (&self.answer, &self.failure) {
            (Some((status, stream, body)), failure) => {
                let broken = failure.as_deref().and_then(how_it_broke);
                End::Answer { status: *status, body: get(body)?, stream: *stream, broken }
            }
            (None, Some(failure)) if how_it_broke(failure) == Some(Break::Silence) => End::Never,
            (None, Some(failure)) => End::Failed { status: self.status.unwrap_or(502), message: failure.clone() },
            (None, None) => return Ok(None),
        };
        let ModelRequest { call_id: call, path, model, body, .. } = self.request;
        Ok(Some(Take { call, endpoint, path, model, request: get(&body)?, end }))
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

/// How an answer broke off; none: it came whole, however wrong it was.
fn how_it_broke(failure: &str) -> Option<Break> {
    let says = |known: UpstreamFailure| failure == known.to_string();
    if says(UpstreamFailure::SessionEnded) || says(UpstreamFailure::Abandoned) {
        Some(Break::Silence)
    } else if says(UpstreamFailure::Cut) || failure.starts_with("the upstream was silent for") {
        Some(Break::Cut)
    } else {
        None
    }
}
