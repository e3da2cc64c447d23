//! Translation of requests and responses between the APIs of a client and its upstream.
//!
//! Each API has a decoder and an encoder for requests, to and from [`conversation`], and for responses, through
//! [`response_writer`]. So any client can call any upstream. All of them are pure state machines over bytes; they do no
//! I/O. An emitted Anthropic stream is always valid: blocks are numbered from 0 without gaps, one block is open at a
//! time, and usage is never zero. A part of a request that the upstream's API cannot hold is refused by name.
//!
//! Not here: which upstream is called (`vendor`), and the cost of a call.

mod anthropic;
mod block_sequencer;
mod chat_completions;
mod conversation;
mod fields;
mod gemini;
mod response_body;
mod response_writer;
mod responses;
#[cfg(test)]
mod round_trips;
mod stream_encoder;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;

use self::{
    conversation::{Conversation, ToolAlias},
    fields::TranslationError,
    response_writer::{ResponseDecoder, ResponseTranslator},
    stream_encoder::StreamEncoder,
};
use crate::{
    endpoint::ModelEndpoint,
    upstream::{UpstreamFailure, UpstreamRequest, UpstreamResponse},
    vendor::VendorKind,
};

/// A pair of APIs, client to upstream, between which calls can be translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Translation {
    client: ModelEndpoint,
    upstream: UpstreamApi,
}

/// The API into which requests are translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UpstreamApi {
    Messages,
    ChatCompletions,
    Gemini,
}

/// The facts about a request that the translation of its response needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseTranslation {
    client: ModelEndpoint,
    upstream: UpstreamApi,
    /// Estimated tokens of the prompt, reported until the upstream reports its own count.
    input_estimate: u64,
    /// Whether the client wants usage in its stream.
    wants_usage: bool,
    /// Tools whose calls look different to a responses client than to the upstream.
    aliases: Vec<ToolAlias>,
}

impl Translation {
    /// Returns the translation for a call to `endpoint` at an upstream of `kind`; `None` for calls to no model.
    pub(crate) fn between(endpoint: ModelEndpoint, kind: VendorKind) -> Option<Self> {
        let upstream = match kind {
            VendorKind::Anthropic => UpstreamApi::Messages,
            VendorKind::Gemini => UpstreamApi::Gemini,
            VendorKind::Openai | VendorKind::OpenaiCompatible | VendorKind::Litellm => UpstreamApi::ChatCompletions,
        };
        endpoint.is_charged().then_some(Self { client: endpoint, upstream })
    }

    /// Translates `request` in place; fails if its body is invalid or has no equivalent in the other API.
    pub(crate) fn translate_request(
        self,
        kind: VendorKind,
        request: &mut UpstreamRequest,
    ) -> Result<ResponseTranslation, UpstreamFailure> {
        let input_estimate = estimate_tokens(request.body.len());
        let untranslatable = |error: TranslationError| UpstreamFailure::Untranslatable(error.to_string());
        let conversation = self.decode(request).map_err(untranslatable)?;
        let wants_usage = self.client != ModelEndpoint::ChatCompletions || conversation.wants_usage;
        let (aliases, stream) = (conversation.aliases(), conversation.stream);
        let body = self.encode(conversation, kind).map_err(untranslatable)?;
        request.body = Bytes::from(body.to_string());
        (request.endpoint, request.path_and_query) = match self.upstream {
            UpstreamApi::ChatCompletions => (ModelEndpoint::ChatCompletions, "/v1/chat/completions".to_owned()),
            UpstreamApi::Messages => (ModelEndpoint::Messages, "/v1/messages".to_owned()),
            UpstreamApi::Gemini if stream => (
                ModelEndpoint::StreamGenerateContent,
                format!("/v1beta/models/{}:streamGenerateContent?alt=sse", path_segment(&request.model)),
            ),
            UpstreamApi::Gemini => (
                ModelEndpoint::GenerateContent,
                format!("/v1beta/models/{}:generateContent", path_segment(&request.model)),
            ),
        };
        request.headers = self.upstream_headers(&request.headers);
        Ok(ResponseTranslation { client: self.client, upstream: self.upstream, input_estimate, wants_usage, aliases })
    }

    fn decode(self, request: &UpstreamRequest) -> Result<Conversation, TranslationError> {
        let body = &request.body;
        match self.client {
            ModelEndpoint::Messages | ModelEndpoint::CountTokens => anthropic::request_decoder::decode(body),
            ModelEndpoint::ChatCompletions => chat_completions::request_decoder::decode(body),
            ModelEndpoint::Responses => responses::request_decoder::decode(body),
            ModelEndpoint::GenerateContent => gemini::request_decoder::decode(body, &request.model, false),
            ModelEndpoint::StreamGenerateContent => {
                // Without it a stream is one list, which could not be forwarded as it arrives.
                let query = request.path_and_query.split_once('?').map_or("", |(_, query)| query);
                if !query.split('&').any(|field| field == "alt=sse") {
                    let reason = "a translated stream needs `alt=sse` in the query".to_owned();
                    return Err(TranslationError::Invalid { field: "alt".to_owned(), reason });
                }
                gemini::request_decoder::decode(body, &request.model, true)
            }
        }
    }

    fn encode(self, conversation: Conversation, kind: VendorKind) -> Result<Value, TranslationError> {
        match self.upstream {
            UpstreamApi::Messages => anthropic::request_encoder::encode(conversation),
            UpstreamApi::ChatCompletions => Ok(chat_completions::request_encoder::encode(conversation, kind)),
            UpstreamApi::Gemini => gemini::request_encoder::encode(conversation),
        }
    }

    /// Returns the headers for the upstream: headers of one vendor have no meaning for another.
    fn upstream_headers(self, client_headers: &HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(agent) = client_headers.get(header::USER_AGENT) {
            headers.insert(header::USER_AGENT, agent.clone());
        }
        if self.upstream == UpstreamApi::Messages {
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
        let hide_usage = !self.wants_usage;
        let response = response_body::translate_response(self, response).await?;
        Ok(UpstreamResponse { hide_usage, ..response })
    }

    /// Returns a translator for one response.
    fn translator(&self) -> ResponseTranslator {
        let decoder: Box<dyn ResponseDecoder> = match self.upstream {
            UpstreamApi::Messages => Box::new(anthropic::response_decoder::MessagesResponseDecoder::default()),
            UpstreamApi::ChatCompletions => {
                Box::new(chat_completions::response_decoder::ChatResponseDecoder::default())
            }
            UpstreamApi::Gemini => Box::new(gemini::response_decoder::GeminiResponseDecoder::default()),
        };
        let encoder: Box<dyn StreamEncoder> = match self.client {
            ModelEndpoint::Messages | ModelEndpoint::CountTokens => {
                Box::new(anthropic::response_encoder::MessagesStreamEncoder::default())
            }
            ModelEndpoint::ChatCompletions => {
                Box::new(chat_completions::response_encoder::ChatStreamEncoder::default())
            }
            ModelEndpoint::Responses => {
                Box::new(responses::response_encoder::ResponsesStreamEncoder::new(self.aliases.clone()))
            }
            ModelEndpoint::GenerateContent | ModelEndpoint::StreamGenerateContent => {
                Box::new(gemini::response_encoder::GeminiStreamEncoder::default())
            }
        };
        ResponseTranslator::new(decoder, encoder, self.input_estimate)
    }
}

/// Returns a model name as one segment of a path.
fn path_segment(model: &str) -> String {
    let name = model.strip_prefix("models/").unwrap_or(model);
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(encode).collect()
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
