//! The little the gateway reads of a request: which model, how long an answer, and whether it is a stream.
//!
//! Parsed beside the bytes, which are forwarded as they came.

use std::borrow::Cow;

use serde::Deserialize;

use crate::{endpoint::Endpoint, refusal::Refusal};

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// The longest answer the client wants.
    pub(crate) max_tokens: Option<u64>,
}

// A second `model` or `stream` is an error here: two parsers must never read two different requests.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    stream: Option<bool>,
    // Each API has its own name; the largest one counts.
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    #[serde(rename = "generationConfig")]
    generation_config: Option<GenerationConfig>,
}

#[derive(Deserialize)]
struct GenerationConfig {
    #[serde(rename = "maxOutputTokens")]
    max_output_tokens: Option<u64>,
}

impl Ask {
    /// Reads a call to `endpoint`.
    pub(crate) fn read(endpoint: Endpoint, path: &str, body: &[u8]) -> Result<Self, Refusal> {
        let fields: Fields<'_> =
            serde_json::from_slice(body).map_err(|error| Refusal::BodyInvalid(error.to_string()))?;
        let in_config = fields.generation_config.and_then(|config| config.max_output_tokens);
        let max_tokens = [fields.max_tokens, fields.max_completion_tokens, fields.max_output_tokens, in_config];
        let max_tokens = max_tokens.into_iter().flatten().max();
        if let Some((model, endpoint)) = Endpoint::in_gemini_path(path) {
            let stream = endpoint == Endpoint::StreamGenerateContent;
            return Ok(Self { model: model.to_owned(), stream, max_tokens });
        }
        let stream = fields.stream.unwrap_or(false) && endpoint.is_charged();
        let model = fields.model.ok_or_else(|| Refusal::BodyInvalid("it names no `model`".to_owned()))?;
        Ok(Self { model: model.into_owned(), stream, max_tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Option<Ask> {
        Ask::read(Endpoint::Messages, "/v1/messages", body.as_bytes()).ok()
    }

    #[test]
    fn model_and_stream_are_found_among_the_rest() {
        let ask = read(
            r#"{"messages":[{"content":"{\"model\":\"x\"}"}],"model":"claude-\u0061","stream":true,"max_tokens":5}"#,
        );
        assert_eq!(ask, Some(Ask { model: "claude-a".into(), stream: true, max_tokens: Some(5) }));
    }

    #[test]
    fn what_two_parsers_could_read_differently_is_refused() {
        for body in ["", "[]", "{}", r#"{"model":1}"#, r#"{"model":"a","model":"b"}"#, r#"{"model":"a"} x"#] {
            assert_eq!(read(body), None, "`{body}` was accepted");
        }
    }
}
