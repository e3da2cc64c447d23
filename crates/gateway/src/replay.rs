//! An upstream that answers from a recorded session, opens no socket and costs nothing.
//!
//! A request is found by the hash of what it says once everything is taken out that differs between two runs of
//! the same agent. Equal requests get their answers in the order in which they were recorded. A request that was not
//! recorded is refused, with what tells it from the nearest one that was: never answered by guessing.
//!
//! Not here: who plays the person's part in a replay (`session`).

mod nearest;
mod normal;
mod tape;

use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
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
use nearest::Outline;
use tape::{End, Take};

pub use normal::{NormalizerError, RequestNormalizer};

/// Why a session cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Its journal cannot be read.
    #[error("the record of session `{session}` cannot be read")]
    Journal {
        /// The session.
        session: SessionId,
        /// What was wrong.
        #[source]
        source: JournalError,
    },
    /// A body is gone, damaged, or was never kept.
    #[error("session `{session}` was recorded without all bodies of its model calls")]
    Body {
        /// The session.
        session: SessionId,
        /// What was wrong.
        #[source]
        source: BodyError,
    },
}

/// An upstream that answers from a recorded session.
pub struct ReplayUpstream {
    session: SessionId,
    normal: RequestNormalizer,
    takes: Vec<Kept>,
    /// Takes that were not asked for yet, by what was asked.
    waiting: Mutex<HashMap<Digest, VecDeque<usize>>>,
}

/// A recorded call, ready to be looked up.
struct Kept {
    take: Take,
    outline: Outline,
}

impl ReplayUpstream {
    /// The calls of `session`, as they were recorded in `directory`.
    ///
    /// Where secrets were left out of the record, `normal` must leave out the same.
    pub fn open(directory: &DataDir, session: &SessionId, normal: RequestNormalizer) -> Result<Self, ReplayError> {
        let mut takes = Vec::new();
        let mut waiting: HashMap<Digest, VecDeque<usize>> = HashMap::new();
        for take in tape::read(directory, session)? {
            let outline = Outline::of(take.endpoint, &take.path, &normal.normalize_request(&take.request));
            waiting.entry(outline.key()).or_default().push_back(takes.len());
            takes.push(Kept { take, outline });
        }
        Ok(Self { session: session.clone(), normal, takes, waiting: Mutex::new(waiting) })
    }

    /// How many recorded calls nobody has asked for.
    pub fn unused_calls(&self) -> usize {
        self.waiting().values().map(VecDeque::len).sum()
    }

    fn find(&self, request: &UpstreamRequest) -> Result<&Take, UpstreamFailure> {
        let path = format!("{} {}", request.method, request.path_and_query);
        let outline = Outline::of(request.endpoint, &path, &self.normal.normalize_request(&request.body));
        let next = self.waiting().get_mut(&outline.key()).and_then(VecDeque::pop_front);
        match next.and_then(|index| self.takes.get(index)) {
            Some(kept) => Ok(&kept.take),
            None => Err(UpstreamFailure::NotRecorded(self.explain(&outline))),
        }
    }

    /// Why there is no answer, in words that show what to look at.
    fn explain(&self, asked: &Outline) -> String {
        let (session, key) = (&self.session, asked.key());
        let recorded = self.takes.iter().filter(|kept| kept.outline.key() == key).count();
        if recorded > 0 {
            let times = if recorded == 1 { "once".to_owned() } else { format!("{recorded} times") };
            return format!("replay of `{session}`: this request was recorded {times}, and is asked for once more");
        }
        let outlines = self.takes.iter().map(|kept| (kept.take.call.as_str(), &kept.outline));
        format!("replay of `{session}`: this request was not recorded; {}", nearest::compare(asked, outlines))
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, VecDeque<usize>>> {
        lock(&self.waiting)
    }
}

impl Upstream for ReplayUpstream {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn models(&self) -> Vec<String> {
        let mut models: Vec<String> = self.takes.iter().filter_map(|kept| kept.take.model.clone()).collect();
        models.sort();
        models.dedup();
        models
    }

    fn is_free(&self) -> bool {
        true
    }

    fn send(&self, request: UpstreamRequest) -> BoxFuture<'_, Result<UpstreamResponse, UpstreamFailure>> {
        async move {
            let take = self.find(&request)?;
            match &take.end {
                End::Answer { status, body, stream, broken } => {
                    let hide_usage = *stream && hides_usage(&request);
                    let frames = play(body, *stream, *broken);
                    Ok(UpstreamResponse { hide_usage, ..answer(*status, *stream, frames) })
                }
                End::Failed { status, message } => {
                    let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
                    let body = Bytes::from(error_body(request.endpoint.dialect(), status, message).to_string());
                    Ok(answer(status.as_u16(), false, play(&body, false, None)))
                }
                // Nothing came before the session ended or the agent gave up; it will again.
                End::Never => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// How an answer that did not come whole ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// The connection broke.
    Cut,
    /// Whoever asked had left, or the session ended: nothing more comes.
    Silence,
}

/// The bytes of an answer: those of a stream event by event, as a vendor sends them.
fn play(body: &Bytes, is_stream: bool, broken: Option<Break>) -> ResponseStream {
    let frames = if is_stream { events(body) } else { vec![body.clone()] };
    let frames = stream::iter(frames.into_iter().map(Ok));
    match broken {
        None => Box::pin(frames),
        Some(Break::Cut) => Box::pin(frames.chain(stream::iter([Err(UpstreamFailure::Cut)]))),
        Some(Break::Silence) => Box::pin(frames.chain(stream::pending())),
    }
}

fn events(body: &Bytes) -> Vec<Bytes> {
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

fn answer(status: u16, is_stream: bool, frames: ResponseStream) -> UpstreamResponse {
    let kind = if is_stream { "text/event-stream" } else { "application/json" };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    UpstreamResponse { status, headers, frames, hide_usage: false }
}

/// Whether the recorded stream tells usage that this client did not ask for.
fn hides_usage(request: &UpstreamRequest) -> bool {
    request.endpoint == ModelEndpoint::ChatCompletions
        && splice::ask_for_usage(&request.body).is_ok_and(|asked| asked.is_some())
}
