//! Upstreams over HTTP: the vendors themselves, and whoever speaks like them.
//!
//! What leaves is what came: path, query, headers that may leave, and the body byte for byte, but for the
//! model's name where it is an alias. The key goes into one header and nowhere else.

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
    splice,
    translate::{Translation, estimate_tokens},
    upstream::{ResponseStream, Upstream, UpstreamFailure, UpstreamRequest, UpstreamResponse},
    wire::{Answer, Client, Connector, Origin, RequestHead},
};

pub use config::{VendorConfig, VendorError, VendorKind, parse_certificates};

/// An upstream over HTTP.
pub struct VendorUpstream {
    config: VendorConfig,
    host: String,
    base_path: String,
    credentials: HeaderMap,
    cover: Option<Cover>,
    client: Client,
}

impl VendorUpstream {
    /// Sets an upstream up; nothing is connected before the first call.
    pub fn new(config: VendorConfig) -> Result<Self, VendorError> {
        let address: Uri = config.base_url.parse().map_err(|_| VendorError::Address(config.base_url.clone()))?;
        let origin = Origin::of(&address).ok_or_else(|| VendorError::Address(config.base_url.clone()))?;
        let tls = |source| VendorError::Tls { name: config.name.clone(), source };
        let connector = Connector::new(origin, &config.extra_roots).map_err(tls)?;
        Ok(Self {
            host: connector.origin().authority(),
            base_path: address.path().trim_end_matches('/').to_owned(),
            credentials: credentials(&config)?,
            cover: config.key.as_ref().and_then(Cover::over),
            client: Client::new(config.name.clone(), connector, config.timeouts, config.retries),
            config,
        })
    }

    async fn call(&self, mut request: UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        self.rename_model(&mut request)?;
        if self.config.kind.accepts(request.endpoint) {
            return self.exchange(&mut request).await;
        }
        if request.endpoint == ModelEndpoint::CountTokens {
            return Ok(counted(request.body.len()));
        }
        let unsupported = || UpstreamFailure::Unsupported { upstream: self.config.name.clone() };
        let translation = Translation::between(request.endpoint, self.config.kind).ok_or_else(unsupported)?;
        let asked = translation.translate_request(self.config.kind, &mut request)?;
        asked.translate_response(self.exchange(&mut request).await?).await
    }

    /// Sends a request in the upstream's own words.
    async fn exchange(&self, request: &mut UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        let hide_usage = ask_for_usage(request)?;
        self.add_headers(request)?;
        let path_and_query = join(&self.base_path, &request.path_and_query);
        let head = RequestHead {
            method: &request.method,
            path_and_query: &path_and_query,
            host: &self.host,
            headers: &request.headers,
        };
        let Answer { status, mut headers, frames } = self.client.send(head, &request.body).await?;
        let frames = unpack(status, &mut headers, frames)?;
        let (headers, frames) = self.cover(headers, frames);
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
            request.body = splice::replace_model(&request.body, &model).map_err(not_json)?;
        }
        request.model = model;
        Ok(())
    }

    fn add_headers(&self, request: &mut UpstreamRequest) -> Result<(), UpstreamFailure> {
        for (name, value) in &self.credentials {
            request.headers.insert(name.clone(), value.clone());
        }
        // To say nothing would mean that any coding is welcome.
        request.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if self.config.kind == VendorKind::Litellm {
            let metadata = json!({
                "run_id": request.run,
                "attempt": request.attempt,
                "call_id": request.call.as_str(),
                "session_id": request.session.as_str(),
                "user_id": request.user,
            });
            let invalid =
                |_| UpstreamFailure::Unsendable("the name of its account cannot stand in a header".to_owned());
            let account = HeaderValue::try_from(&*request.account).map_err(invalid)?;
            let metadata = HeaderValue::try_from(metadata.to_string()).map_err(invalid)?;
            request.headers.insert("x-litellm-end-user-id", account);
            request.headers.insert("x-litellm-spend-logs-metadata", metadata);
        }
        Ok(())
    }

    /// The answer with the key covered, should the server repeat it.
    fn cover(&self, mut headers: HeaderMap, frames: ResponseStream) -> (HeaderMap, ResponseStream) {
        let Some(Cover { veil, lowered }) = &self.cover else { return (headers, frames) };
        let in_name = |name: &HeaderName| name.as_str().len() >= lowered.len() && name.as_str().contains(lowered);
        let repeats = |name: &HeaderName, value: &HeaderValue| veil.covers(value.as_bytes()) || in_name(name);
        let telling: Vec<HeaderName> =
            headers.iter().filter(|(name, value)| repeats(name, value)).map(|(name, _)| name.clone()).collect();
        for name in telling {
            headers.remove(name);
        }
        (headers, Box::pin(Covered { frames, veil: veil.clone(), over: false }))
    }
}

/// What keeps the key out of answers.
struct Cover {
    veil: Redactor,
    /// The key in lower case, as it would stand in the name of a header.
    lowered: String,
}

impl Cover {
    fn over(key: &Secret) -> Option<Self> {
        Some(Self { veil: Redactor::over(key)?, lowered: key.expose().to_ascii_lowercase() })
    }
}

/// The bytes of an answer behind a veil.
struct Covered {
    frames: ResponseStream,
    veil: Redactor,
    over: bool,
}

impl Stream for Covered {
    type Item = Result<Bytes, UpstreamFailure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while !this.over {
            match ready!(this.frames.as_mut().poll_next(context)) {
                Some(Ok(bytes)) => match this.veil.pass(bytes) {
                    bytes if bytes.is_empty() => {}
                    bytes => return Poll::Ready(Some(Ok(bytes))),
                },
                Some(Err(failure)) => {
                    this.over = true;
                    return Poll::Ready(Some(Err(failure)));
                }
                None => {
                    this.over = true;
                    return Poll::Ready(Some(this.veil.finish()).filter(|rest| !rest.is_empty()).map(Ok));
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
        // One model that answers for every name is the only one there is.
        if self.config.model.is_some() { None } else { self.config.kind.vendor() }
    }

    fn resolve(&self, model: &str) -> String {
        let alias = self.config.aliases.get(model).or(self.config.model.as_ref());
        alias.cloned().unwrap_or_else(|| model.to_owned())
    }

    fn send(&self, request: UpstreamRequest) -> BoxFuture<'_, Result<UpstreamResponse, UpstreamFailure>> {
        self.call(request).boxed()
    }
}

fn credentials(config: &VendorConfig) -> Result<HeaderMap, VendorError> {
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

/// Asks for the usage of a chat stream where the client did not; says whether it must be hidden again.
fn ask_for_usage(request: &mut UpstreamRequest) -> Result<bool, UpstreamFailure> {
    if request.endpoint != ModelEndpoint::ChatCompletions || !request.stream {
        return Ok(false);
    }
    let asked: Option<Bytes> = splice::ask_for_usage(&request.body).map_err(not_json)?;
    let hide = asked.is_some();
    request.body = asked.unwrap_or_else(|| request.body.clone());
    Ok(hide)
}

/// The body in plain bytes, however it came; the headers say so from then on.
fn unpack(
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
        // A refusal costs nothing, also where nobody can read why: its status must stay known.
        Err(coding) => {
            headers.remove(header::CONTENT_LENGTH);
            Box::pin(stream::once(async { Err(UpstreamFailure::UnsupportedEncoding(coding)) }))
        }
    };
    headers.remove(header::CONTENT_ENCODING);
    Ok(frames)
}

/// A count of tokens for a client whose upstream cannot count: our own estimate.
fn counted(bytes: usize) -> UpstreamResponse {
    let body = Bytes::from(json!({"input_tokens": estimate_tokens(bytes)}).to_string());
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let frames = Box::pin(stream::once(async { Ok(body) }));
    UpstreamResponse { status: StatusCode::OK, headers, frames, hide_usage: false }
}

/// A base path and the path of a request; a segment that ends the one and begins the other stands once.
fn join(base: &str, path_and_query: &str) -> String {
    let first = path_and_query.trim_start_matches('/').split('/').next().unwrap_or_default();
    let base = base.strip_suffix(first).and_then(|base| base.strip_suffix('/')).unwrap_or(base);
    format!("{base}{path_and_query}")
}

fn not_json(error: serde_json::Error) -> UpstreamFailure {
    UpstreamFailure::Unsendable(format!("it cannot be changed for its upstream: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_stands_once_in_a_path() {
        assert_eq!(join("", "/v1/messages?beta=true"), "/v1/messages?beta=true");
        assert_eq!(join("/v1", "/v1/chat/completions"), "/v1/chat/completions");
        assert_eq!(join("/proxy/v1", "/v1/responses"), "/proxy/v1/responses");
        assert_eq!(join("/openai", "/v1/responses"), "/openai/v1/responses");
        assert_eq!(join("/api-v1", "/v1/responses"), "/api-v1/v1/responses");
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        for address in ["", "api.example.com", "ftp://example.com", "http://"] {
            let config = VendorConfig::new("v", VendorKind::Anthropic, address);
            assert!(matches!(VendorUpstream::new(config), Err(VendorError::Address(_))), "`{address}` was accepted");
        }
    }
}
