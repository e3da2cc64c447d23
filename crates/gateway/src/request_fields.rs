//! The fields of a request that the gateway needs: model, stream flag and upper bound of the usage.
//!
//! The body is only read here. It is forwarded byte for byte.

mod parser;

use crate::{endpoint::ModelEndpoint, external_inputs::ExternalInputs, price::UsageBound, refusal::CallRefusal};
use parser::ParsedBody;

/// The most tokens that a vendor adds to a prompt, for tool instructions and message separators.
const ADDED_TOKENS: u64 = 4_096;
/// The longest prompt that a model accepts, for a request that does not contain its whole prompt.
const MAX_PROMPT_TOKENS: u64 = 1 << 20;

/// The model, stream flag and usage bound of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestFields {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) bound: UsageBound,
}

impl RequestFields {
    /// Reads the fields from the body, and for Gemini from the path. Fails if the body is invalid or names no model.
    pub(crate) fn read(endpoint: ModelEndpoint, path: &str, body: &[u8]) -> Result<Self, CallRefusal> {
        let parsed = ParsedBody::read(body).map_err(|error| CallRefusal::BodyInvalid(error.to_string()))?;
        let bound = parsed.bound(body.len());
        if let Some((model, endpoint)) = ModelEndpoint::in_gemini_path(path) {
            return Ok(Self {
                model: model.to_owned(),
                stream: endpoint == ModelEndpoint::StreamGenerateContent,
                bound,
            });
        }
        let stream = parsed.stream.unwrap_or(false) && endpoint.is_charged();
        let model = parsed.model.ok_or_else(|| CallRefusal::BodyInvalid("missing field `model`".to_owned()))?;
        Ok(Self { model, stream, bound })
    }
}

impl ParsedBody {
    fn bound(&self, length: usize) -> UsageBound {
        let ExternalInputs { extend_prompt, hour_cache } = self.external_inputs;
        let bytes = (length as u64).saturating_add(ADDED_TOKENS);
        let generation = self.generation.as_ref();
        let limits = [
            self.max_tokens,
            self.max_completion_tokens,
            self.max_output_tokens,
            generation.and_then(|generation| generation.max_output_tokens),
        ];
        // Upstreams differ in which field they obey, so the largest value is the bound.
        let output_tokens = limits.into_iter().flatten().map(count).max();
        let answers = [self.n, generation.and_then(|generation| generation.candidates)];
        UsageBound {
            input_tokens: if extend_prompt { bytes.max(MAX_PROMPT_TOKENS) } else { bytes },
            output_tokens,
            answers: answers.into_iter().flatten().map(count).max().unwrap_or(1).max(1),
            hour_cache,
        }
    }
}

/// Rounds up a number as clients write it, such as `1.0e3`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn count(number: f64) -> u64 {
    number.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Option<RequestFields> {
        RequestFields::read(ModelEndpoint::Messages, "/v1/messages", body.as_bytes()).ok()
    }

    #[test]
    fn model_and_stream_flag_are_read() {
        let fields = read(r#"{"messages":[{"content":"{\"model\":\"x\"}"}],"model":"claude-\u0061","stream":true}"#);
        let fields = fields.unwrap();
        assert_eq!((fields.model.as_str(), fields.stream), ("claude-a", true));
    }

    #[test]
    fn ambiguous_body_is_rejected() {
        for body in [
            "",
            "[]",
            "{}",
            "null",
            r#"["claude-a",true,5]"#,
            r#"{"model":"a","Model":"b"}"#,
            r#"{"model":1}"#,
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a"} x"#,
        ] {
            assert_eq!(read(body), None, "`{body}` was accepted");
        }
    }

    #[test]
    fn usage_bound_is_read_from_the_request() {
        let bound = |body: &str| read(body).unwrap().bound;
        let chat = r#"{"model":"m","max_tokens":10,"max_completion_tokens":1.5e1,"n":3}"#;
        let expected = UsageBound {
            input_tokens: chat.len() as u64 + 4_096,
            output_tokens: Some(15),
            answers: 3,
            hour_cache: false,
        };
        assert_eq!(bound(chat), expected);
        let gemini = bound(r#"{"model":"m","generationConfig":{"maxOutputTokens":7,"candidateCount":2}}"#);
        assert_eq!((gemini.output_tokens, gemini.answers), (Some(7), 2));
        assert_eq!(bound(r#"{"model":"m","max_tokens":-1,"n":0}"#).answers, 1);
        assert_eq!(bound(r#"{"model":"m","max_tokens":1e300}"#).output_tokens, Some(u64::MAX));
        assert_eq!(bound(r#"{"model":"m","previous_response_id":"r"}"#).input_tokens, 1 << 20);
    }
}
