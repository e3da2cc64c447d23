//! The routes of a listener, and the API dialect of each.
//!
//! The list is closed: a path that is not here does not exist on a session's listener.

use http::{HeaderMap, Method};
use protocol::{EventBody, ModelRequest, ModelResponse};

/// The API that a client uses. It determines the format of errors, streams and usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiDialect {
    /// Anthropic Messages.
    Anthropic,
    /// `OpenAI`, chat completions or responses.
    Openai,
    /// Google Gemini.
    Gemini,
}

impl ApiDialect {
    /// Returns the most likely dialect of a request whose path does not determine it.
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

    /// Returns the journal event for a request.
    pub(crate) fn request_event(self, request: ModelRequest) -> EventBody {
        match self {
            Self::Anthropic => EventBody::AnthropicRequest(request),
            Self::Openai => EventBody::OpenaiRequest(request),
            Self::Gemini => EventBody::GeminiRequest(request),
        }
    }

    /// Returns the journal event for a response.
    pub(crate) fn response_event(self, response: ModelResponse) -> EventBody {
        match self {
            Self::Anthropic => EventBody::AnthropicResponse(response),
            Self::Openai => EventBody::OpenaiResponse(response),
            Self::Gemini => EventBody::GeminiResponse(response),
        }
    }
}

/// An endpoint of a model API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelEndpoint {
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1beta/models/{model}:generateContent`
    GenerateContent,
    /// `POST /v1beta/models/{model}:streamGenerateContent`
    StreamGenerateContent,
}

impl ModelEndpoint {
    /// Returns the API that the endpoint belongs to.
    pub fn dialect(self) -> ApiDialect {
        match self {
            Self::Messages | Self::CountTokens => ApiDialect::Anthropic,
            Self::ChatCompletions | Self::Responses => ApiDialect::Openai,
            Self::GenerateContent | Self::StreamGenerateContent => ApiDialect::Gemini,
        }
    }

    /// Returns whether a call runs a model and so costs something.
    pub fn is_charged(self) -> bool {
        self != Self::CountTokens
    }

    /// Returns whether the path names the model.
    pub(crate) fn is_gemini(self) -> bool {
        self.dialect() == ApiDialect::Gemini
    }

    /// Returns the model and the endpoint that a Gemini path names.
    pub(crate) fn in_gemini_path(path: &str) -> Option<(&str, Self)> {
        let rest = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"))?;
        let (model, action) = rest.split_once(':')?;
        let endpoint = match action {
            "generateContent" => Self::GenerateContent,
            "streamGenerateContent" => Self::StreamGenerateContent,
            _ => return None,
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        (!model.is_empty() && model.bytes().all(is_name)).then_some((model, endpoint))
    }
}

/// Returns the model that a path below `/models` names, still percent-encoded.
pub(crate) fn in_models_path(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"))?;
    (!rest.is_empty()).then_some(rest)
}

/// The route of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// A health check: `HEAD /`, `HEAD /api/hello`.
    Hello,
    /// `GET /v1/models`, `GET /v1beta/models`
    Models,
    /// `GET /v1/models/{model}`, `GET /v1beta/models/{model}`
    Model,
    /// A call to a model.
    Call(ModelEndpoint),
    /// `GET /v1/responses`: a client tries a WebSocket and falls back to `POST` when refused.
    WebSocket,
    /// A known path with a method that it does not accept.
    WrongMethod,
    /// An unknown path.
    Unknown,
}

impl Route {
    /// Returns the route of a method and path.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let (route, allowed) = match path {
            "/" | "/api/hello" => (Self::Hello, Method::HEAD),
            "/v1/models" | "/v1beta/models" => (Self::Models, Method::GET),
            "/v1/messages" => (Self::Call(ModelEndpoint::Messages), Method::POST),
            "/v1/messages/count_tokens" => (Self::Call(ModelEndpoint::CountTokens), Method::POST),
            "/v1/chat/completions" => (Self::Call(ModelEndpoint::ChatCompletions), Method::POST),
            "/v1/responses" if *method == Method::GET => return Self::WebSocket,
            "/v1/responses" => (Self::Call(ModelEndpoint::Responses), Method::POST),
            _ => match (ModelEndpoint::in_gemini_path(path), in_models_path(path)) {
                (Some((_, endpoint)), _) => (Self::Call(endpoint), Method::POST),
                (None, Some(_)) if *method == Method::GET => (Self::Model, Method::GET),
                (None, _) => return Self::Unknown,
            },
        };
        if *method == allowed { route } else { Self::WrongMethod }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gemini_path_names_model_and_endpoint() {
        let path = "/v1beta/models/gemini-2.5-pro:streamGenerateContent";
        assert_eq!(ModelEndpoint::in_gemini_path(path), Some(("gemini-2.5-pro", ModelEndpoint::StreamGenerateContent)));
        for path in ["/v1beta/models/a/b:generateContent", "/v1beta/models/:generateContent", "/v1beta/models/m:embed"]
        {
            assert_eq!(ModelEndpoint::in_gemini_path(path), None, "`{path}` was accepted");
        }
    }
}
