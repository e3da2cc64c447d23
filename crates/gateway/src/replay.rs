//! An upstream that answers from the recording of a session. It opens no connection and costs nothing.
//!
//! A request is looked up by the digest of its normalized form: values that differ between two runs of the same agent are
//! removed. Equal requests get their answers in recorded order. A request that was not recorded is refused with its
//! difference from the most similar recorded request; answers are never guessed.
//!
//! Not here: replaying the prompts and permission answers of the user (`session`).

mod nearest_request;
mod normalizer;
mod recording;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, OnceLock},
};

use base::{Digest, lock};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use memchr::memmem;
use protocol::SessionId;
use store::{BodyError, DataDir, JournalError};

use crate::{
    endpoint::ModelEndpoint,
    refusal::error_body,
    splice,
    upstream::{ResponseStream, Upstream, UpstreamFailure, UpstreamRequest, UpstreamResponse},
};
use nearest_request::RequestOutline;
use recording::{RecordedCall, RecordedOutcome};

pub use normalizer::{NormalizerError, RequestNormalizer};

/// Error of opening a recording.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The journal cannot be read.
    #[error("cannot read the journal of session `{session}`")]
    Journal {
        /// The session.
        session: SessionId,
        /// Cause.
        #[source]
        source: JournalError,
    },
    /// A body is missing, damaged, or was never recorded.
    #[error("cannot read all recorded model call bodies of session `{session}`")]
    Body {
        /// The session.
        session: SessionId,
        /// Cause.
        #[source]
        source: BodyError,
    },
}

/// An upstream that answers from a recorded session.
pub struct ReplayUpstream {
    session: SessionId,
    normalizer: RequestNormalizer,
    calls: Vec<IndexedCall>,
    /// Indexes into `calls` of the calls not replayed yet, by the key of their request.
    unused: Mutex<HashMap<Digest, VecDeque<usize>>>,
    /// Why the first request without a recorded answer had none.
    first_miss: OnceLock<String>,
}

/// A recorded call with the outline of its request.
struct IndexedCall {
    call: RecordedCall,
    outline: RequestOutline,
}

impl ReplayUpstream {
    /// Opens the recording of `session` in `directory`.
    ///
    /// If bodies were recorded redacted, `normalizer` must apply the same redaction.
    pub fn open(directory: &DataDir, session: &SessionId, normalizer: RequestNormalizer) -> Result<Self, ReplayError> {
        let mut calls = Vec::new();
        let mut unused: HashMap<Digest, VecDeque<usize>> = HashMap::new();
        for call in recording::read_calls(directory, session)? {
            let outline = RequestOutline::new(call.endpoint, &call.path, &normalizer.normalize_request(&call.request));
            unused.entry(outline.key()).or_default().push_back(calls.len());
            calls.push(IndexedCall { call, outline });
        }
        Ok(Self {
            session: session.clone(),
            normalizer,
            calls,
            unused: Mutex::new(unused),
            first_miss: OnceLock::new(),
        })
    }

    /// Returns the number of recorded calls that were not requested.
    pub fn unused_calls(&self) -> usize {
        self.unused().values().map(VecDeque::len).sum()
    }

    /// Returns the explanation of the first request that was not recorded; `None` if all were.
    pub fn first_miss(&self) -> Option<&str> {
        self.first_miss.get().map(String::as_str)
    }

    /// Returns the next recorded call that equals `request`, and marks the call as used.
    fn take_call(&self, request: &UpstreamRequest) -> Result<&RecordedCall, UpstreamFailure> {
        let path = format!("{} {}", request.method, request.path_and_query);
        let outline = RequestOutline::new(request.endpoint, &path, &self.normalizer.normalize_request(&request.body));
        let next = self.unused().get_mut(&outline.key()).and_then(VecDeque::pop_front);
        if let Some(indexed) = next.and_then(|index| self.calls.get(index)) {
            return Ok(&indexed.call);
        }
        let miss = self.explain_miss(&outline);
        self.first_miss.get_or_init(|| miss.clone());
        Err(UpstreamFailure::NotRecorded(miss))
    }

    /// Describes why the recording has no answer for `request`.
    fn explain_miss(&self, request: &RequestOutline) -> String {
        let (session, key) = (&self.session, request.key());
        let recorded = self.calls.iter().filter(|indexed| indexed.outline.key() == key).count();
        if recorded > 0 {
            let times = if recorded == 1 { "once".to_owned() } else { format!("{recorded} times") };
            return format!(
                "replay of session `{session}`: this request was recorded {times} and is sent once more than that"
            );
        }
        let outlines = self.calls.iter().map(|indexed| (indexed.call.call.as_str(), &indexed.outline));
        format!(
            "replay of session `{session}`: this request was not recorded; {}",
            nearest_request::describe_nearest(request, outlines)
        )
    }

    fn unused(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, VecDeque<usize>>> {
        lock(&self.unused)
    }
}

impl Upstream for ReplayUpstream {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn models(&self) -> Vec<String> {
        let mut models: Vec<String> = self.calls.iter().filter_map(|indexed| indexed.call.model.clone()).collect();
        models.sort();
        models.dedup();
        models
    }

    fn is_free(&self) -> bool {
        true
    }

    fn send(&self, request: UpstreamRequest) -> BoxFuture<'_, Result<UpstreamResponse, UpstreamFailure>> {
        async move {
            let call = self.take_call(&request)?;
            match &call.outcome {
                RecordedOutcome::Answer { status, body, stream, interruption } => {
                    let hide_usage = *stream && hides_usage(&request);
                    let frames = recorded_stream(body, *stream, *interruption);
                    Ok(UpstreamResponse { hide_usage, ..response(*status, *stream, frames) })
                }
                RecordedOutcome::Failed { status, message } => {
                    let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
                    let body = Bytes::from(error_body(request.endpoint.dialect(), status, message).to_string());
                    Ok(response(status.as_u16(), false, recorded_stream(&body, false, None)))
                }
                // The agent gave up or the session ended while waiting; the replayed agent does the same.
                RecordedOutcome::Unanswered => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// How an incomplete answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The connection to the upstream broke.
    ConnectionLost,
    /// The client left or the session ended, so the rest was never received.
    NoMoreData,
}

/// Returns the recorded body; a stream is sent event by event, as a vendor sends it.
fn recorded_stream(body: &Bytes, is_stream: bool, interruption: Option<Interruption>) -> ResponseStream {
    let frames = if is_stream { split_events(body) } else { vec![body.clone()] };
    let frames = stream::iter(frames.into_iter().map(Ok));
    match interruption {
        None => Box::pin(frames),
        Some(Interruption::ConnectionLost) => Box::pin(frames.chain(stream::iter([Err(UpstreamFailure::Cut)]))),
        Some(Interruption::NoMoreData) => Box::pin(frames.chain(stream::pending())),
    }
}

fn split_events(body: &Bytes) -> Vec<Bytes> {
    let mut rest = body.clone();
    let mut events = Vec::new();
    while let Some(end) = memmem::find(&rest, b"\n\n") {
        events.push(rest.split_to(end + 2));
    }
    if !rest.is_empty() {
        events.push(rest);
    }
    events
}

fn response(status: u16, is_stream: bool, frames: ResponseStream) -> UpstreamResponse {
    let kind = if is_stream { "text/event-stream" } else { "application/json" };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    UpstreamResponse { status, headers, frames, hide_usage: false }
}

/// Returns whether the usage event of the recorded stream must be hidden because this client did not request usage.
fn hides_usage(request: &UpstreamRequest) -> bool {
    request.endpoint == ModelEndpoint::ChatCompletions
        && splice::ask_for_usage(&request.body).is_ok_and(|asked| asked.is_some())
}
