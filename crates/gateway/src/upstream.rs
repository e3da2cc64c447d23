//! The port to model services: a vendor, the scripted model or a recording.

use std::{fmt, pin::Pin, sync::Arc};

use base::BudgetFull;
use bytes::Bytes;
use futures_util::{Stream, future::BoxFuture};
use http::{HeaderMap, Method, StatusCode};
use protocol::{CallId, SessionId};
use store::LedgerError;

use crate::{call::SendProgress, endpoint::ModelEndpoint};

/// A model service behind the gateway.
///
/// `send` returns when the response head has arrived; the body follows unchanged in `frames`. A response with an error
/// status is a response, not a failure. Dropping `frames` cancels the call. Implementations never follow redirects and
/// never retry after the first byte of a response.
pub trait Upstream: Send + Sync {
    /// Returns the name in the configuration and in records.
    fn name(&self) -> &str;
    /// Returns the configured model names, aliases included.
    fn models(&self) -> Vec<String>;
    /// Returns the vendor, as named in the price table, whose other models the upstream has as well.
    fn vendor(&self) -> Option<&'static str> {
        None
    }
    /// Returns the upstream's name for `model`, which is requested and billed.
    fn resolve(&self, model: &str) -> String {
        model.to_owned()
    }
    /// Returns whether all calls are free.
    fn is_free(&self) -> bool {
        false
    }
    /// Returns whether a call to `endpoint` is translated into another API, which takes memory for its JSON.
    fn translates(&self, _endpoint: ModelEndpoint) -> bool {
        false
    }
    /// Sends one call; fails if no response head arrives.
    fn send(&self, request: UpstreamRequest) -> BoxFuture<'_, Result<UpstreamResponse, UpstreamFailure>>;
}

impl fmt::Debug for dyn Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.name()).finish()
    }
}

/// A call from the agent, without credentials.
#[derive(Debug, Clone)]
pub struct UpstreamRequest {
    /// The endpoint.
    pub endpoint: ModelEndpoint,
    /// The HTTP method.
    pub method: Method,
    /// Path and query, unchanged.
    pub path_and_query: String,
    /// Headers to forward: no credentials, cookies or hop-by-hop headers.
    pub headers: HeaderMap,
    /// The body, unchanged except that it is decompressed.
    pub body: Bytes,
    /// The requested model.
    pub model: String,
    /// Whether a stream is requested.
    pub stream: bool,
    /// Id of the call, for upstreams with their own spend logs.
    pub call: CallId,
    /// Id of the session, for upstreams with their own spend logs.
    pub session: SessionId,
    /// The account that pays.
    pub account: Arc<str>,
    /// The run that the call belongs to.
    pub run: Arc<str>,
    /// Attempt number of the run, from 1.
    pub attempt: u32,
    /// The user, if known.
    pub user: Option<Arc<str>>,
    /// Notes whether the request may have left.
    pub progress: SendProgress,
}

/// The body of a response as a stream of frames.
pub type ResponseStream = Pin<Box<dyn Stream<Item = Result<Bytes, UpstreamFailure>> + Send>>;

/// A response head and the stream of its body.
pub struct UpstreamResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// All headers; the gateway selects those that the agent may see.
    pub headers: HeaderMap,
    /// The body.
    pub frames: ResponseStream,
    /// Whether only the gateway requested the usage event, so that it must be hidden from the agent.
    pub hide_usage: bool,
}

impl UpstreamFailure {
    /// Returns whether the gateway itself ended the call, so that the vendor bills no more than until then.
    pub(crate) fn is_cancellation(&self) -> bool {
        matches!(
            self,
            Self::SessionEnded
                | Self::Interrupted
                | Self::BudgetExhausted
                | Self::Abandoned
                | Self::AbandonedWithoutRoom
        )
    }

    /// Returns whether the request may have reached the vendor, so that it may have cost something.
    pub(crate) fn may_have_been_served(&self) -> bool {
        !matches!(
            self,
            Self::Unreachable { .. }
                | Self::Unsupported { .. }
                | Self::Untranslatable(_)
                | Self::Unsendable(_)
                | Self::NotRecorded(_)
                | Self::NotMarkedSent(_)
        )
    }
}

/// Reason why an upstream gave no response or an incomplete one.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamFailure {
    /// No connection could be established.
    #[error("cannot reach the upstream `{upstream}`")]
    Unreachable {
        /// Name of the upstream.
        upstream: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The upstream has another API and there is no translation.
    #[error("the upstream `{upstream}` does not support `{endpoint:?}` requests")]
    Unsupported {
        /// Name of the upstream.
        upstream: String,
        /// The endpoint that was called.
        endpoint: ModelEndpoint,
    },
    /// The request cannot be translated to the upstream's API.
    #[error("cannot translate the request to the API of the upstream: {0}")]
    Untranslatable(String),
    /// The request cannot be prepared for the upstream and was not sent.
    #[error("cannot send the request: {0}")]
    Unsendable(String),
    /// The recording has no answer to this request.
    #[error("{0}")]
    NotRecorded(String),
    /// The upstream sent nothing for this many seconds.
    #[error("timeout: the upstream sent nothing for {0} seconds")]
    Silent(u64),
    /// The ledger could not note that the call is sent, so it was not sent.
    #[error("cannot note the start of the call in the ledger, so the call was not sent")]
    NotMarkedSent(#[source] LedgerError),
    /// The connection ended before the response was complete.
    #[error("the connection to the upstream closed before the response was complete")]
    Cut,
    /// The response is invalid.
    #[error("invalid response from the upstream: {0}")]
    InvalidResponse(String),
    /// The response has a content encoding that was not requested and is not supported.
    #[error("the upstream's response has the unsupported content encoding `{0}`")]
    UnsupportedEncoding(String),
    /// The response, or one event of it, exceeds the limit.
    #[error("the upstream's response is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The session holds too many bytes in memory to receive more of the response.
    #[error("cannot receive the response: {0}")]
    InFlightFull(#[source] BudgetFull),
    /// The session ended during the response.
    #[error("the session ended before the response was complete")]
    SessionEnded,
    /// The turn of the call was interrupted.
    #[error("the turn was interrupted, so the call was cancelled")]
    Interrupted,
    /// The hold of the call could not grow any further.
    #[error("budget exhausted during the response, so the call was cancelled")]
    BudgetExhausted,
    /// The client disconnected and the rest of the response took too long.
    #[error("the client disconnected and the rest of the response did not arrive in time")]
    Abandoned,
    /// The client disconnected and the session holds too many bytes in memory to receive the rest.
    #[error("the client disconnected and memory was full (limits.in_flight), so the call was cancelled")]
    AbandonedWithoutRoom,
}
