//! What can be called, and in whose words.
//!
//! The list is closed: a path that is not here does not exist on a session's listener.

use http::{HeaderMap, Method};
use protocol::{EventBody, ModelRequest, ModelResponse};

/// Whose API a client speaks: decides the shape of errors, streams and usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Anthropic Messages.
    Anthropic,
    /// `OpenAI`, chat completions or responses.
    Openai,
    /// Google Gemini.
    Gemini,
}

impl Dialect {
    /// What a caller most likely speaks, where the path does not say.
    pub(crate) fn guess(path: &str, headers: &HeaderMap) -> Self {
        if path.starts_with("/v1beta") || headers.contains_key("x-goog-api-key") {
            Self::Gemini
        } else if path.starts_with("/v1/messages")
            || headers.contains_key("anthropic-version")
            || headers.contains_key("x-api-key")
        {
            Self::Anthropic
        } else {
            Self::Openai
        }
    }

    /// The journal's event for a request.
    pub(crate) fn request_event(self, request: ModelRequest) -> EventBody {
        match self {
            Self::Anthropic => EventBody::AnthropicRequest(request),
            Self::Openai => EventBody::OpenaiRequest(request),
            Self::Gemini => EventBody::GeminiRequest(request),
        }
    }

    /// The journal's event for an answer.
    pub(crate) fn response_event(self, response: ModelResponse) -> EventBody {
        match self {
            Self::Anthropic => EventBody::AnthropicResponse(response),
            Self::Openai => EventBody::OpenaiResponse(response),
            Self::Gemini => EventBody::GeminiResponse(response),
        }
    }
}

/// A call that reaches a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
}

impl Endpoint {
    /// Whose words it is in.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
        }
    }

    /// Whether a model runs, so that there is something to pay.
    pub fn is_charged(self) -> bool {
        self != Self::CountTokens
    }
}

/// What a request line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// A sign of life: `HEAD /`, `HEAD /api/hello`.
    Hello,
    /// `GET /v1/models`
    Models,
    /// A call to a model.
    Call(Endpoint),
    /// A path that exists, with a method it does not take.
    WrongMethod,
    /// Nothing of ours.
    Unknown,
}

impl Route {
    /// Reads method and path.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let (route, allowed) = match path {
            "/" | "/api/hello" => (Self::Hello, Method::HEAD),
            "/v1/models" => (Self::Models, Method::GET),
            "/v1/messages" => (Self::Call(Endpoint::Messages), Method::POST),
            "/v1/messages/count_tokens" => (Self::Call(Endpoint::CountTokens), Method::POST),
            _ => return Self::Unknown,
        };
        if *method == allowed { route } else { Self::WrongMethod }
    }
}
