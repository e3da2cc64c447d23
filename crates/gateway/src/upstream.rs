//! The port to whoever answers: a vendor, a script, a recording.

use std::{fmt, pin::Pin, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, future::BoxFuture};
use http::{HeaderMap, Method, StatusCode};
use protocol::{CallId, SessionId};

use crate::endpoint::ModelEndpoint;

/// A model's side, as the gateway sees it.
///
/// `send` returns when the head of the answer is known; the bytes follow in `frames`, as they come and
/// unchanged. An answer with an error status is an answer, not a failure. Dropping the frames gives the
/// call up. An implementation never follows redirects and never retries after the first byte.
pub trait Upstream: Send + Sync {
    /// Its name in the configuration and in the records.
    fn name(&self) -> &str;
    /// The models that were named for it: aliases, and what else it is known to have.
    fn models(&self) -> Vec<String>;
    /// Whose models it has beside these, in the words of the price table.
    fn vendor(&self) -> Option<&'static str> {
        None
    }
    /// The name under which it knows `model`: what is asked of it, and what is paid for.
    fn resolve(&self, model: &str) -> String {
        model.to_owned()
    }
    /// Whether its calls cost nothing, whatever the model is called.
    fn is_free(&self) -> bool {
        false
    }
    /// Sends one call.
    fn send(&self, request: UpstreamRequest) -> BoxFuture<'_, Result<UpstreamResponse, UpstreamFailure>>;
}

impl fmt::Debug for dyn Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.name()).finish()
    }
}

/// One call, as it came from the agent, without what must not leave.
#[derive(Debug, Clone)]
pub struct UpstreamRequest {
    /// What is called.
    pub endpoint: ModelEndpoint,
    /// The method, as it came.
    pub method: Method,
    /// Path and query, as they came.
    pub path_and_query: String,
    /// Headers that may leave: no credentials, no cookies, nothing hop-by-hop.
    pub headers: HeaderMap,
    /// The body, byte for byte; what came compressed is plain here.
    pub body: Bytes,
    /// The model asked for.
    pub model: String,
    /// Whether the answer is to be a stream.
    pub stream: bool,
    /// The call, for upstreams that keep accounts.
    pub call: CallId,
    /// The session, for upstreams that keep accounts.
    pub session: SessionId,
    /// The account that pays.
    pub account: Arc<str>,
    /// The run it is counted under.
    pub run: Arc<str>,
    /// Which attempt of the run, from 1.
    pub attempt: u32,
    /// The person, where one is known.
    pub user: Option<Arc<str>>,
}

/// The bytes of an answer, as they come.
pub type ResponseStream = Pin<Box<dyn Stream<Item = Result<Bytes, UpstreamFailure>> + Send>>;

/// The head of an answer, and its bytes to come.
pub struct UpstreamResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers, all of them; the gateway chooses which the agent may see.
    pub headers: HeaderMap,
    /// The body.
    pub frames: ResponseStream,
    /// Whether the event with the usage was asked for by us alone, and is not for the agent.
    pub hide_usage: bool,
}

impl UpstreamFailure {
    /// Whether the request may have reached the vendor before it failed, so that it may have cost something.
    pub(crate) fn may_have_been_served(&self) -> bool {
        !matches!(
            self,
            Self::Unreachable { .. }
                | Self::Unsupported { .. }
                | Self::Untranslatable(_)
                | Self::Unsendable(_)
                | Self::NotRecorded(_)
        )
    }
}

/// Why the model's side gave no answer, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamFailure {
    /// No connection could be made.
    #[error("cannot reach the upstream `{upstream}`")]
    Unreachable {
        /// Its name.
        upstream: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The upstream speaks another API, and we cannot put the call into its words.
    #[error("the upstream `{upstream}` does not take this kind of request")]
    Unsupported {
        /// Its name.
        upstream: String,
    },
    /// The request cannot be put into the upstream's words.
    #[error("the request cannot be translated for its upstream: {0}")]
    Untranslatable(String),
    /// The request cannot be made ready for the upstream, so it never left.
    #[error("the request cannot be sent: {0}")]
    Unsendable(String),
    /// A recording holds no answer to this request.
    #[error("{0}")]
    NotRecorded(String),
    /// Nothing came for too long.
    #[error("the upstream was silent for {0} seconds")]
    Silent(u64),
    /// The connection ended before the answer did.
    #[error("the upstream's answer was cut before its end")]
    Cut,
    /// What came is no answer.
    #[error("the upstream's answer makes no sense: {0}")]
    InvalidResponse(String),
    /// The answer is compressed in a way nobody asked for.
    #[error("the upstream's answer is encoded with `{0}`, which it was not asked for and which cannot be read here")]
    UnsupportedEncoding(String),
    /// The answer, or one event of it, is longer than we take.
    #[error("the upstream's answer is longer than {limit} bytes")]
    TooLong {
        /// What we take.
        limit: usize,
    },
    /// The model said mid-way that it failed.
    #[error("the upstream failed in mid-answer: {0}")]
    Reported(String),
    /// The session ended while the answer was on its way.
    #[error("the session ended before the answer did")]
    SessionEnded,
    /// The client left and the rest took too long to read.
    #[error("the client left and the rest of the answer was given up")]
    Abandoned,
}
