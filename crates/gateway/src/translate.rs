//! Translation of requests and responses between the APIs of a client and its upstream.
//!
//! All translators are pure state machines over bytes; they do no I/O. An emitted Anthropic stream is always valid:
//! blocks are numbered from 0 without gaps, one block is open at a time, and usage is never zero.
//!
//! Requests: `messages_to_chat`, `chat_to_messages`, `responses_to_chat`. Responses: `chat_response` reads chat and
//! writes with a `StreamEncoder`; `messages_response` reads Anthropic and writes chat.
//!
//! Not here: which upstream is called (`vendor`), and the cost of a call.

mod block_sequencer;
mod chat;
mod chat_response;
mod chat_to_messages;
mod messages;
mod messages_encoder;
mod messages_response;
mod messages_to_chat;
mod response_body;
mod responses_encoder;
mod responses_to_chat;
mod stream_encoder;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;

use crate::{
    endpoint::ModelEndpoint,
    upstream::{UpstreamFailure, UpstreamRequest, UpstreamResponse},
    vendor::VendorKind,
};

/// A pair of APIs, client to upstream, between which calls can be translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Translation {
    /// An Anthropic Messages client with a chat completions upstream.
    MessagesToChat,
    /// A chat completions client with an Anthropic upstream.
    ChatToMessages,
    /// An `OpenAI` responses client with a chat completions upstream.
    ResponsesToChat,
}

/// The facts about a request that the translation of its response needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseTranslation {
    translation: Translation,
    /// Estimated tokens of the prompt, reported until the upstream reports its own count.
    input_estimate: u64,
    /// Whether a chat client requested usage in its stream.
    wants_usage: bool,
    /// Names of the tools of a responses client that take free text instead of JSON.
    custom_tools: Vec<String>,
}

impl Translation {
    /// Returns the translation for a call to `endpoint` at an upstream of `kind`, if there is one.
    pub(crate) fn between(endpoint: ModelEndpoint, kind: VendorKind) -> Option<Self> {
        match (endpoint, kind) {
            (ModelEndpoint::Messages, VendorKind::Openai | VendorKind::OpenaiCompatible) => Some(Self::MessagesToChat),
            (ModelEndpoint::ChatCompletions, VendorKind::Anthropic) => Some(Self::ChatToMessages),
            (ModelEndpoint::Responses, VendorKind::OpenaiCompatible) => Some(Self::ResponsesToChat),
            _ => None,
        }
    }

    /// Translates `request` in place; fails if its body is invalid or has no equivalent in the other API.
    pub(crate) fn translate_request(
        self,
        kind: VendorKind,
        request: &mut UpstreamRequest,
    ) -> Result<ResponseTranslation, UpstreamFailure> {
        let input_estimate = estimate_tokens(request.body.len());
        let wants_usage = crate::splice::ask_for_usage(&request.body).is_ok_and(|asked| asked.is_none());
        let (body, custom_tools) = self.translate_body(kind, &request.body).map_err(UpstreamFailure::Untranslatable)?;
        request.body = Bytes::from(body.to_string());
        let (endpoint, path) = match self {
            Self::MessagesToChat | Self::ResponsesToChat => (ModelEndpoint::ChatCompletions, "/v1/chat/completions"),
            Self::ChatToMessages => (ModelEndpoint::Messages, "/v1/messages"),
        };
        request.endpoint = endpoint;
        path.clone_into(&mut request.path_and_query);
        request.headers = self.upstream_headers(&request.headers);
        Ok(ResponseTranslation { translation: self, input_estimate, wants_usage, custom_tools })
    }

    /// Returns the translated body and the names of the tools that take free text.
    fn translate_body(self, kind: VendorKind, body: &[u8]) -> Result<(Value, Vec<String>), String> {
        let translated = match self {
            Self::MessagesToChat => messages_to_chat::translate_request(body, kind),
            Self::ChatToMessages => chat_to_messages::translate_request(body),
            Self::ResponsesToChat => {
                return responses_to_chat::translate_request(body).map_err(|error| error.to_string());
            }
        };
        translated.map(|body| (body, Vec::new())).map_err(|error| error.to_string())
    }

    /// Returns the headers for the upstream: headers of one vendor have no meaning for another.
    fn upstream_headers(self, client_headers: &HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(agent) = client_headers.get(header::USER_AGENT) {
            headers.insert(header::USER_AGENT, agent.clone());
        }
        if self == Self::ChatToMessages {
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        headers
    }
}

impl ResponseTranslation {
    /// Translates a response into the client's API; a stream is translated while it arrives.
    pub(crate) async fn translate_response(
        self,
        response: UpstreamResponse,
    ) -> Result<UpstreamResponse, UpstreamFailure> {
        let hide_usage = self.translation == Translation::ChatToMessages && !self.wants_usage;
        let response = response_body::translate_response(self, response).await?;
        Ok(UpstreamResponse { hide_usage, ..response })
    }
}

/// The bytes of memory of a JSON list or of one value in it, with the room that a list keeps for more.
const VALUE_BYTES: usize = 160;
/// The bytes of memory of a JSON object, with the room that it keeps for more fields.
const OBJECT_BYTES: usize = 720;

/// Returns the most bytes of memory that the translation of `body` takes beside `body`: a tree of JSON values with a copy
/// of every text, and the translated body.
///
/// Many short lists or objects take up to eighty times the memory of their text.
pub(crate) fn translation_bytes(body: &[u8]) -> usize {
    // A comma within a text counts as well. Looking for the ends of texts would cost more than it saves.
    let values = memchr::memchr2_iter(b',', b'[', body).count().saturating_mul(VALUE_BYTES);
    let objects = memchr::memchr_iter(b'{', body).count().saturating_mul(OBJECT_BYTES);
    values.saturating_add(objects).saturating_add(body.len().saturating_mul(2))
}

/// Returns an estimate of the tokens in `bytes` bytes of text: one token per four bytes.
pub(crate) fn estimate_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4).max(1) as u64
}
