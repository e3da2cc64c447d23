//! Puts a call into the words of an upstream that speaks another API, and its answer back.
//!
//! Pure state machines over bytes: nothing here waits or connects. What is emitted as an Anthropic stream
//! is always a valid one: blocks numbered from 0 without gaps, one open at a time, usage never zero.
//!
//! Not here: which upstream is called (`vendor`), or what a call costs (`till`).

mod answer;
mod blocks;
mod chat;
mod from_chat;
mod from_messages;
mod message;
mod messages;
mod narrator;
mod response;
mod responses;
mod to_chat;
mod to_messages;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;

use crate::{
    endpoint::ModelEndpoint,
    upstream::{UpstreamFailure, UpstreamRequest, UpstreamResponse},
    vendor::VendorKind,
};

/// Two APIs between which calls can be translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Translation {
    /// A Messages client before a chat upstream.
    MessagesToChat,
    /// A chat client before an Anthropic upstream.
    ChatToMessages,
    /// A responses client before a chat upstream.
    ResponsesToChat,
}

/// What must be remembered of a request to translate its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    translation: Translation,
    /// Tokens of the prompt, by our own count: told where the upstream has not told its own yet.
    input_estimate: u64,
    /// Whether a chat client asked for the usage of its stream.
    wants_usage: bool,
    /// Tools of a responses client that take free text.
    custom_tools: Vec<String>,
}

impl Translation {
    /// The translation that lets `kind` take a call to `endpoint`.
    pub(crate) fn between(endpoint: ModelEndpoint, kind: VendorKind) -> Option<Self> {
        match (endpoint, kind) {
            (ModelEndpoint::Messages, VendorKind::Openai | VendorKind::OpenaiCompatible) => Some(Self::MessagesToChat),
            (ModelEndpoint::ChatCompletions, VendorKind::Anthropic) => Some(Self::ChatToMessages),
            (ModelEndpoint::Responses, VendorKind::OpenaiCompatible) => Some(Self::ResponsesToChat),
            _ => None,
        }
    }

    /// Puts a request into the upstream's words.
    pub(crate) fn translate_request(self, kind: VendorKind, request: &mut UpstreamRequest) -> Result<Asked, UpstreamFailure> {
        let input_estimate = estimate_tokens(request.body.len());
        let wants_usage = crate::splice::ask_for_usage(&request.body).is_ok_and(|asked| asked.is_none());
        let (body, custom_tools) = self.body(kind, &request.body).map_err(UpstreamFailure::Untranslatable)?;
        request.body = Bytes::from(body.to_string());
        let (endpoint, path) = match self {
            Self::MessagesToChat | Self::ResponsesToChat => (ModelEndpoint::ChatCompletions, "/v1/chat/completions"),
            Self::ChatToMessages => (ModelEndpoint::Messages, "/v1/messages"),
        };
        request.endpoint = endpoint;
        path.clone_into(&mut request.path_and_query);
        request.headers = self.headers(&request.headers);
        Ok(Asked { translation: self, input_estimate, wants_usage, custom_tools })
    }

    /// The body in the upstream's words, and the tools of the client that take free text.
    fn body(self, kind: VendorKind, body: &[u8]) -> Result<(Value, Vec<String>), String> {
        let translated = match self {
            Self::MessagesToChat => to_chat::request(body, kind),
            Self::ChatToMessages => to_messages::request(body),
            Self::ResponsesToChat => return responses::request(body).map_err(|error| error.to_string()),
        };
        translated.map(|body| (body, Vec::new())).map_err(|error| error.to_string())
    }

    /// One vendor's headers mean nothing to another.
    fn headers(self, came: &HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(agent) = came.get(header::USER_AGENT) {
            headers.insert(header::USER_AGENT, agent.clone());
        }
        if self == Self::ChatToMessages {
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        headers
    }
}

impl Asked {
    /// Puts an answer into the client's words, as it comes.
    pub(crate) async fn translate_response(self, answer: UpstreamResponse) -> Result<UpstreamResponse, UpstreamFailure> {
        let hide_usage = self.translation == Translation::ChatToMessages && !self.wants_usage;
        let answer = answer::translate(self, answer).await?;
        Ok(UpstreamResponse { hide_usage, ..answer })
    }
}

/// A count of ours, where there is no other: four bytes are about a token.
pub(crate) fn estimate_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4).max(1) as u64
}
