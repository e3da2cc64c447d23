//! Upstreams over HTTP: model vendors and compatible servers.
//!
//! Path, query, allowed headers and body are forwarded unchanged. Exceptions are the model name if it is an alias, the
//! request for usage in chat streams, and translated calls. The key is sent in one header and appears nowhere else.

mod config;

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{FutureExt, Stream, future::BoxFuture, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use serde_json::json;

use secret::{Redactor, Secret};

use crate::{
    coding::Coding,
    endpoint::ModelEndpoint,
    http_client::{HttpClient, HttpResponse, RequestHead, ServerConnector, ServerOrigin},
    splice,
    translate::{Translation, estimate_tokens},
    upstream::{ResponseStream, Upstream, UpstreamFailure, UpstreamRequest, UpstreamResponse},
};

pub use config::{VendorConfig, VendorError, VendorKind, parse_certificates};

/// An upstream over HTTP.
pub struct VendorUpstream {
    config: VendorConfig,
    host: String,
    base_path: String,
    credentials: HeaderMap,
    key_redaction: Option<KeyRedaction>,
    client: HttpClient,
}

impl VendorUpstream {
    /// Creates an upstream; connects at the first call. Fails if the address, key or certificates are invalid.
    pub fn new(config: VendorConfig) -> Result<Self, VendorError> {
        let address: Uri = config.base_url.parse().map_err(|_| VendorError::Address(config.base_url.clone()))?;
        let origin = ServerOrigin::from_uri(&address).ok_or_else(|| VendorError::Address(config.base_url.clone()))?;
        let tls = |source| VendorError::Tls { name: config.name.clone(), source };
        let connector = ServerConnector::new(origin, &config.extra_roots).map_err(tls)?;
        Ok(Self {
            host: connector.origin().authority(),
            base_path: address.path().trim_end_matches('/').to_owned(),
            credentials: credential_headers(&config)?,
            key_redaction: config.key.as_ref().and_then(KeyRedaction::new),
            client: HttpClient::new(config.name.clone(), connector, config.timeouts, config.retries),
            config,
        })
    }

    async fn call(&self, mut request: UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        self.rename_model(&mut request)?;
        if self.config.kind.accepts(request.endpoint) {
            return self.exchange(&mut request).await;
        }
        if request.endpoint == ModelEndpoint::CountTokens {
            return Ok(estimated_count_response(request.body.len()));
        }
        let endpoint = request.endpoint;
        let unsupported = || UpstreamFailure::Unsupported { upstream: self.config.name.clone(), endpoint };
        let translation = Translation::between(request.endpoint, self.config.kind).ok_or_else(unsupported)?;
        let response_translation = translation.translate_request(self.config.kind, &mut request)?;
        response_translation.translate_response(self.exchange(&mut request).await?).await
    }

    /// Sends a request that is already in the upstream's API.
    async fn exchange(&self, request: &mut UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        let hide_usage = request_usage(request)?;
        self.add_headers(request)?;
        let path_and_query = join_path(&self.base_path, &request.path_and_query);
        let head = RequestHead {
            method: &request.method,
            path_and_query: &path_and_query,
            host: &self.host,
            headers: &request.headers,
        };
        let HttpResponse { status, mut headers, frames } =
            self.client.send(head, &request.body, &request.progress).await?;
        let frames = decode_frames(status, &mut headers, frames)?;
        let (headers, frames) = self.redact_key(headers, frames);
        Ok(UpstreamResponse { status, headers, frames, hide_usage: hide_usage && status.is_success() })
    }

    fn rename_model(&self, request: &mut UpstreamRequest) -> Result<(), UpstreamFailure> {
        let model = self.resolve(&request.model);
        if model == request.model {
            return Ok(());
        }
        if request.endpoint.is_gemini() {
            request.path_and_query = request.path_and_query.replacen(&request.model, &model, 1);
        } else {
            request.body = splice::replace_model(&request.body, &model).map_err(unsendable)?;
        }
        request.model = model;
        Ok(())
    }

    fn add_headers(&self, request: &mut UpstreamRequest) -> Result<(), UpstreamFailure> {
        for (name, value) in &self.credentials {
            request.headers.insert(name.clone(), value.clone());
        }
        // Without this header the upstream may use any encoding.
        request.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if self.config.kind == VendorKind::Litellm {
            let metadata = json!({
                "run_id": request.run,
                "attempt": request.attempt,
                "call_id": request.call.as_str(),
                "session_id": request.session.as_str(),
                "user_id": request.user,
            });
            let account = header_value("account", &request.account)?;
            let metadata = header_value("metadata", &metadata.to_string())?;
            request.headers.insert("x-litellm-end-user-id", account);
            request.headers.insert("x-litellm-spend-logs-metadata", metadata);
        }
        Ok(())
    }

    /// Removes the key from a response, in case the server repeats it.
    fn redact_key(&self, mut headers: HeaderMap, frames: ResponseStream) -> (HeaderMap, ResponseStream) {
        let Some(KeyRedaction { redactor, lowercase_key }) = &self.key_redaction else {
            return (headers, frames);
        };
        let in_name =
            |name: &HeaderName| name.as_str().len() >= lowercase_key.len() && name.as_str().contains(lowercase_key);
        let repeats = |name: &HeaderName, value: &HeaderValue| redactor.finds_secret(value.as_bytes()) || in_name(name);
        let revealing: Vec<HeaderName> =
            headers.iter().filter(|(name, value)| repeats(name, value)).map(|(name, _)| name.clone()).collect();
        for name in revealing {
            headers.remove(name);
        }
        (headers, Box::pin(RedactedStream { frames, redactor: redactor.clone(), ended: false }))
    }
}

/// Redacts the upstream's key in responses.
struct KeyRedaction {
    redactor: Redactor,
    /// The key in lower case, as it would appear in a header name.
    lowercase_key: String,
}

impl KeyRedaction {
    fn new(key: &Secret) -> Option<Self> {
        Some(Self { redactor: Redactor::new(key)?, lowercase_key: key.expose().to_ascii_lowercase() })
    }
}

/// A response body in which the key is redacted.
struct RedactedStream {
    frames: ResponseStream,
    redactor: Redactor,
    ended: bool,
}

impl Stream for RedactedStream {
    type Item = Result<Bytes, UpstreamFailure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while !this.ended {
            match ready!(this.frames.as_mut().poll_next(context)) {
                Some(Ok(bytes)) => match this.redactor.redact(bytes) {
                    bytes if bytes.is_empty() => {}
                    bytes => return Poll::Ready(Some(Ok(bytes))),
                },
                Some(Err(failure)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(failure)));
                }
                None => {
                    this.ended = true;
                    return Poll::Ready(Some(this.redactor.finish()).filter(|rest| !rest.is_empty()).map(Ok));
                }
            }
        }
        Poll::Ready(None)
    }
}

impl Upstream for VendorUpstream {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn models(&self) -> Vec<String> {
        self.config.aliases.keys().chain(&self.config.model).cloned().collect()
    }

    fn vendor(&self) -> Option<&'static str> {
        // With a fixed model, the upstream has no other models of its vendor.
        if self.config.model.is_some() { None } else { self.config.kind.vendor() }
    }

    fn resolve(&self, model: &str) -> String {
        let alias = self.config.aliases.get(model).or(self.config.model.as_ref());
        alias.cloned().unwrap_or_else(|| model.to_owned())
    }

    fn translates(&self, endpoint: ModelEndpoint) -> bool {
        !self.config.kind.accepts(endpoint) && Translation::between(endpoint, self.config.kind).is_some()
    }

    fn send(&self, request: UpstreamRequest) -> BoxFuture<'_, Result<UpstreamResponse, UpstreamFailure>> {
        self.call(request).boxed()
    }
}

fn credential_headers(config: &VendorConfig) -> Result<HeaderMap, VendorError> {
    let mut headers = HeaderMap::new();
    let Some(key) = &config.key else { return Ok(headers) };
    let (name, text) = match config.kind {
        VendorKind::Anthropic => ("x-api-key", key.expose().to_owned()),
        VendorKind::Gemini => ("x-goog-api-key", key.expose().to_owned()),
        VendorKind::Openai | VendorKind::OpenaiCompatible | VendorKind::Litellm => {
            ("authorization", format!("Bearer {}", key.expose()))
        }
    };
    let mut value = HeaderValue::try_from(text).map_err(|_| VendorError::Key(config.name.clone()))?;
    value.set_sensitive(true);
    headers.insert(HeaderName::from_static(name), value);
    Ok(headers)
}

/// Requests usage in a chat stream if the client did not; returns whether the usage must be hidden from the client.
fn request_usage(request: &mut UpstreamRequest) -> Result<bool, UpstreamFailure> {
    if request.endpoint != ModelEndpoint::ChatCompletions || !request.stream {
        return Ok(false);
    }
    let changed: Option<Bytes> = splice::ask_for_usage(&request.body).map_err(unsendable)?;
    let hide = changed.is_some();
    request.body = changed.unwrap_or_else(|| request.body.clone());
    Ok(hide)
}

/// Decompresses the body and removes the headers about its encoding; fails on an unsupported encoding.
fn decode_frames(
    status: StatusCode,
    headers: &mut HeaderMap,
    frames: ResponseStream,
) -> Result<ResponseStream, UpstreamFailure> {
    let frames = match Coding::of(headers) {
        Ok(None) => frames,
        Ok(Some(coding)) => {
            headers.remove(header::CONTENT_LENGTH);
            coding.unpack_frames(frames)
        }
        Err(coding) if status.is_success() => return Err(UpstreamFailure::UnsupportedEncoding(coding)),
        // An error response costs nothing, even if its body cannot be decoded, so its status must be kept.
        Err(coding) => {
            headers.remove(header::CONTENT_LENGTH);
            Box::pin(stream::once(async { Err(UpstreamFailure::UnsupportedEncoding(coding)) }))
        }
    };
    headers.remove(header::CONTENT_ENCODING);
    Ok(frames)
}

/// Returns an estimated token count, for upstreams that cannot count tokens.
fn estimated_count_response(bytes: usize) -> UpstreamResponse {
    let body = Bytes::from(json!({"input_tokens": estimate_tokens(bytes)}).to_string());
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let frames = Box::pin(stream::once(async { Ok(body) }));
    UpstreamResponse { status: StatusCode::OK, headers, frames, hide_usage: false }
}

/// Joins a base path and a request path; a segment at the end of one and the start of the other appears once.
fn join_path(base: &str, path_and_query: &str) -> String {
    let first = path_and_query.trim_start_matches('/').split('/').next().unwrap_or_default();
    let base = base.strip_suffix(first).and_then(|base| base.strip_suffix('/')).unwrap_or(base);
    format!("{base}{path_and_query}")
}

/// Returns `text` as a header value; fails if it contains characters that headers cannot hold.
fn header_value(name: &str, text: &str) -> Result<HeaderValue, UpstreamFailure> {
    HeaderValue::try_from(text).map_err(|_| {
        let text = text.escape_debug();
        UpstreamFailure::Unsendable(format!("the {name} `{text}` is not a valid HTTP header value"))
    })
}

fn unsendable(error: serde_json::Error) -> UpstreamFailure {
    UpstreamFailure::Unsendable(format!("the body cannot be adapted to the upstream: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_segment_is_not_repeated_in_the_path() {
        assert_eq!(join_path("", "/v1/messages?beta=true"), "/v1/messages?beta=true");
        assert_eq!(join_path("/v1", "/v1/chat/completions"), "/v1/chat/completions");
        assert_eq!(join_path("/proxy/v1", "/v1/responses"), "/proxy/v1/responses");
        assert_eq!(join_path("/openai", "/v1/responses"), "/openai/v1/responses");
        assert_eq!(join_path("/api-v1", "/v1/responses"), "/api-v1/v1/responses");
    }

    #[test]
    fn invalid_address_is_rejected() {
        for address in ["", "api.example.com", "ftp://example.com", "http://"] {
            let config = VendorConfig::new("v", VendorKind::Anthropic, address);
            assert!(matches!(VendorUpstream::new(config), Err(VendorError::Address(_))), "`{address}` was accepted");
        }
    }
}
