//! A request with an `Idempotency-Key` is done once, however often it is sent: also over a lost answer and kill -9.
//!
//! A key belongs to its caller and to one request: path, query, type and body. It is on disk before anything is done. What
//! succeeded is answered again as it was; what failed did nothing, so that it may be tried again under its key. A request
//! that was broken off is done again, and what the first time has left on record is taken for its success ([`Named`]).

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use base::lock;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use protocol::{ProblemCode, SessionId, SessionInfo};
use sha2::{Digest, Sha256};
use store::{IdempotencyStore, RecordedResponse, RequestLookup};
use uuid::Uuid;

use crate::access::Caller;
use crate::config::ServerConfig;
use crate::error::ApiError;
use crate::request_id;
use crate::router::SMALL_BODY;
use crate::spool::{self, spool};
use crate::state::AppState;

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Longest key.
pub(crate) const MAX_KEY: usize = 255;
/// Answers larger than this are not kept.
const MAX_ANSWER: usize = 8 << 20;

/// A request that its caller has named; an extension of it.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    /// The same for the same name of the same caller.
    id: Uuid,
    /// When it was begun before, in milliseconds, if it was and has no answer.
    begun_ms: Option<i64>,
}

impl Named {
    /// The id of what such a request makes when nobody chose one.
    pub(crate) fn session_id(&self) -> Result<SessionId, ApiError> {
        SessionId::new(self.id.to_string()).map_err(|error| ApiError::new(ProblemCode::Internal, error.to_string()))
    }

    /// Whether this request is done once more after it was broken off.
    pub(crate) fn is_again(&self) -> bool {
        self.begun_ms.is_some()
    }

    /// Whether `made` is what this request made when it was begun before.
    pub(crate) fn has_made(&self, made: &SessionInfo) -> bool {
        self.begun_ms.is_some_and(|begun| made.created_at >= begun)
    }
}

/// The requests that are being done now.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashSet<(String, String)>>>);

/// One of them; no longer when this is dropped.
struct Flight {
    all: InFlight,
    name: (String, String),
}

impl InFlight {
    fn enter(&self, caller: &str, key: &str) -> Result<Flight, ApiError> {
        let name = (caller.to_owned(), key.to_owned());
        if lock(&self.0).insert(name.clone()) {
            return Ok(Flight { all: self.clone(), name });
        }
        let detail = format!("the request with the key `{key}` is being done");
        Err(ApiError::new(ProblemCode::IdempotencyKeyInFlight, detail))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        lock(&self.all.0).remove(&self.name);
    }
}

/// Does a named request once.
pub(crate) async fn once(State(state): State<AppState>, request: Request, next: Next) -> Result<Response, ApiError> {
    let Some(key) = key(&request)? else { return Ok(next.run(request).await) };
    let caller = request.extensions().get::<Caller>().map(|caller| caller.who.clone()).unwrap_or_default();
    let most = most_bytes(&request, &state.config);
    let (mut request, digest) = fingerprint(request, most).await?;
    let _flight = state.in_flight.enter(&caller, &key)?;
    let requests = state.requests()?;
    let begun_ms = match begin(&requests, &caller, &key, digest).await? {
        RequestLookup::New => None,
        RequestLookup::Unanswered(begun_ms) => Some(begun_ms),
        RequestLookup::Answered(answered) => return Ok(replay(answered)),
        RequestLookup::KeyReused => {
            let detail = format!("the key `{key}` was used for another request");
            return Err(ApiError::new(ProblemCode::IdempotencyKeyReused, detail));
        }
    };
    request.extensions_mut().insert(Named { id: id_of(&caller, &key), begun_ms });
    keep(&requests, caller, key, next.run(request).await).await
}

fn key(request: &Request) -> Result<Option<String>, ApiError> {
    let Some(value) = request.headers().get(HEADER).filter(|_| request.method() == Method::POST) else {
        return Ok(None);
    };
    let key = value.to_str().ok().map(str::trim).filter(|key| !key.is_empty() && key.len() <= MAX_KEY);
    let refused =
        || ApiError::new(ProblemCode::InvalidRequest, format!("`Idempotency-Key` has 1 to {MAX_KEY} plain characters"));
    key.map(|key| Some(key.to_owned())).ok_or_else(refused)
}

/// Bytes the route takes: no more is kept of a body that it would refuse anyway.
fn most_bytes(request: &Request, config: &ServerConfig) -> u64 {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    match route {
        "/v1/import" => config.bundle_bytes,
        "/v1/fs/upload-batch" => config.file_bytes,
        "/v1/sessions/{session_id}"
        | "/v1/sessions/{session_id}/messages"
        | "/v1/sessions/{session_id}/messages/stream" => config.message_bytes as u64,
        _ => SMALL_BODY as u64,
    }
}

/// The request as it was, and the digest of all that makes it what it is.
async fn fingerprint(request: Request, most: u64) -> Result<(Request, [u8; 32]), ApiError> {
    let (parts, body) = request.into_parts();
    let mut hash = Sha256::new();
    let kind = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    for part in [parts.uri.to_string().as_bytes(), kind] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let body = spool(body, most, |piece| hash.update(piece)).await?;
    Ok((Request::from_parts(parts, spool::body(body)), hash.finalize().into()))
}

async fn begin(
    requests: &Arc<IdempotencyStore>,
    caller: &str,
    key: &str,
    digest: [u8; 32],
) -> Result<RequestLookup, ApiError> {
    let (requests, caller, key) = (requests.clone(), caller.to_owned(), key.to_owned());
    let begun = tokio::task::spawn_blocking(move || requests.begin(&caller, &key, &digest)).await;
    match begun {
        Ok(Ok(known)) => Ok(known),
        Ok(Err(error)) => Err(ApiError::unkept("the key cannot be kept", &error)),
        Err(_) => Err(ApiError::new(ProblemCode::JournalUnavailable, "the server is stopping")),
    }
}

/// Keeps what succeeded; what failed did nothing. A stream is not kept: it is read again from where it was.
async fn keep(
    requests: &Arc<IdempotencyStore>,
    caller: String,
    key: String,
    response: Response,
) -> Result<Response, ApiError> {
    let streams = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    if !response.status().is_success() || streams {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = match Limited::new(body, MAX_ANSWER).collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(ApiError::new(ProblemCode::Internal, "it is done, and the answer is too large to be kept"));
        }
        Err(error) => return Err(ApiError::new(ProblemCode::Internal, error.to_string())),
    };
    let answered =
        RecordedResponse { status: parts.status.as_u16(), headers: kept(&parts.headers), body: body.to_vec() };
    let requests = requests.clone();
    let kept = tokio::task::spawn_blocking(move || requests.answer(&caller, &key, &answered)).await;
    // It is done all the same: asked again, it is done again, and finds what is left of this time.
    if let Ok(Err(error)) = kept {
        tracing::error!(%error, "cannot keep an answer for its key");
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// What belongs to the answer, and not to the one time it was sent.
fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let own = |name: &HeaderName| [CONTENT_LENGTH, DATE, request_id::HEADER].contains(name);
    let plain = headers.iter().filter(|(name, _)| !own(name));
    plain.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned()))).collect()
}

fn replay(answered: RecordedResponse) -> Response {
    let mut response = Response::new(Body::from(Bytes::from(answered.body)));
    *response.status_mut() = StatusCode::from_u16(answered.status).unwrap_or(StatusCode::OK);
    for (name, value) in answered.headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(&value)) {
            response.headers_mut().append(name, value);
        }
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

fn id_of(caller: &str, key: &str) -> Uuid {
    let digest = Sha256::new().chain_update((caller.len() as u64).to_le_bytes()).chain_update(caller).chain_update(key);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}
