//! Idempotency keys: a request with an `Idempotency-Key` runs once, even if its response is lost or the server is killed.
//!
//! A key belongs to its caller and to one request: path, query, content type and body. The key is on disk before the
//! request runs. A successful response is stored and returned again. A failed request changed nothing and may be sent
//! again. A request that was interrupted by a crash runs again, and accepts the result of its first run as success
//! ([`IdempotentRequest`]).

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
/// Most bytes of a key.
pub(crate) const MAX_KEY: usize = 255;
/// Larger responses are not stored.
const MAX_STORED_RESPONSE: usize = 8 << 20;

/// A request with an idempotency key; an extension of the request.
#[derive(Debug, Clone)]
pub(crate) struct IdempotentRequest {
    /// Derived from the caller and the key.
    id: Uuid,
    /// The time of its interrupted first run in milliseconds, if there was one.
    begun_ms: Option<i64>,
}

impl IdempotentRequest {
    /// Returns the id of the session that the request creates if the caller chose none.
    pub(crate) fn session_id(&self) -> Result<SessionId, ApiError> {
        SessionId::new(self.id.to_string()).map_err(|error| ApiError::new(ProblemCode::Internal, error.to_string()))
    }

    /// Returns whether the request runs again after an interrupted first run.
    pub(crate) fn is_retry(&self) -> bool {
        self.begun_ms.is_some()
    }

    /// Returns whether the interrupted first run of this request created `made`.
    pub(crate) fn created(&self, made: &SessionInfo) -> bool {
        self.begun_ms.is_some_and(|begun| made.created_at >= begun)
    }
}

/// The running requests by caller and key.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlightRequests(Arc<Mutex<HashSet<(String, String)>>>);

/// Marks one request as running until it is dropped.
struct InFlightGuard {
    all: InFlightRequests,
    name: (String, String),
}

impl InFlightRequests {
    fn enter(&self, caller: &str, key: &str) -> Result<InFlightGuard, ApiError> {
        let name = (caller.to_owned(), key.to_owned());
        if lock(&self.0).insert(name.clone()) {
            return Ok(InFlightGuard { all: self.clone(), name });
        }
        let detail = format!("the request with the idempotency key `{key}` is still running");
        Err(ApiError::new(ProblemCode::IdempotencyKeyInFlight, detail))
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        lock(&self.all.0).remove(&self.name);
    }
}

/// Runs a request with an idempotency key once.
pub(crate) async fn run_once(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let Some(key) = key(&request)? else { return Ok(next.run(request).await) };
    let caller = request.extensions().get::<Caller>().map(|caller| caller.name.clone()).unwrap_or_default();
    let most = max_body_bytes(&request, &state.config);
    let (mut request, digest) = fingerprint(request, most).await?;
    let _flight = state.in_flight.enter(&caller, &key)?;
    let requests = state.requests()?;
    let begun_ms = match begin(&requests, &caller, &key, digest).await? {
        RequestLookup::New => None,
        RequestLookup::Unanswered(begun_ms) => Some(begun_ms),
        RequestLookup::Answered(answered) => return Ok(replay(answered)),
        RequestLookup::KeyReused => {
            let detail = format!("the idempotency key `{key}` was already used for a different request");
            return Err(ApiError::new(ProblemCode::IdempotencyKeyReused, detail));
        }
    };
    request.extensions_mut().insert(IdempotentRequest { id: request_uuid(&caller, &key), begun_ms });
    store_response(&requests, caller, key, next.run(request).await).await
}

fn key(request: &Request) -> Result<Option<String>, ApiError> {
    let Some(value) = request.headers().get(HEADER).filter(|_| request.method() == Method::POST) else {
        return Ok(None);
    };
    let key = value.to_str().ok().map(str::trim).filter(|key| !key.is_empty() && key.len() <= MAX_KEY);
    let refused = || {
        ApiError::new(
            ProblemCode::InvalidRequest,
            format!("`Idempotency-Key` must have 1 to {MAX_KEY} visible ASCII characters"),
        )
    };
    key.map(|key| Some(key.to_owned())).ok_or_else(refused)
}

/// Returns the body limit of the route, because a larger body would be refused anyway.
fn max_body_bytes(request: &Request, config: &ServerConfig) -> u64 {
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

/// Returns the unchanged request and the digest of its path, query, content type and body.
async fn fingerprint(request: Request, most: u64) -> Result<(Request, [u8; 32]), ApiError> {
    let (parts, body) = request.into_parts();
    let mut hash = Sha256::new();
    let kind = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    for part in [parts.uri.to_string().as_bytes(), kind] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let body = spool(body, most, |piece| hash.update(piece)).await?;
    Ok((Request::from_parts(parts, spool::into_body(body)), hash.finalize().into()))
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
        Ok(Err(error)) => Err(ApiError::storage("cannot store the idempotency key", &error)),
        Err(_) => Err(ApiError::new(ProblemCode::JournalUnavailable, "the server is stopping")),
    }
}

/// Stores a successful response. A stream is not stored: a repeated request reads the events again.
async fn store_response(
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
    let body = match Limited::new(body, MAX_STORED_RESPONSE).collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = "the request succeeded, but its response is too large to store for the idempotency key";
            return Err(ApiError::new(ProblemCode::Internal, detail));
        }
        Err(error) => return Err(ApiError::new(ProblemCode::Internal, error.to_string())),
    };
    let answered = RecordedResponse {
        status: parts.status.as_u16(),
        headers: stored_headers(&parts.headers),
        body: body.to_vec(),
    };
    let requests = requests.clone();
    let kept = tokio::task::spawn_blocking(move || requests.answer(&caller, &key, &answered)).await;
    // The request has succeeded. If it is sent again, it runs again and finds the result of this run.
    if let Ok(Err(error)) = kept {
        tracing::error!(%error, "cannot store the response for an idempotency key");
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// Returns the headers to store: all except those of one transmission.
fn stored_headers(headers: &HeaderMap) -> Vec<(String, String)> {
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

fn request_uuid(caller: &str, key: &str) -> Uuid {
    let digest = Sha256::new().chain_update((caller.len() as u64).to_le_bytes()).chain_update(caller).chain_update(key);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}
