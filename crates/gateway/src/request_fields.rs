//! The little the gateway reads of a request: which model, whether the answer is a stream, and the most that
//! it can use.
//!
//! Parsed beside the bytes, which are forwarded as they came.

mod parser;

use crate::{endpoint::ModelEndpoint, external_inputs::ExternalInputs, price::UsageBound, refusal::CallRefusal};
use parser::ParsedBody;

/// What a vendor adds to a prompt: its own words about tools, and marks between messages.
const ADDED_TOKENS: u64 = 4_096;
/// The longest prompt a model takes, for a request whose prompt is not all in it.
const LONGEST_PROMPT: u64 = 1 << 20;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestFields {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) bound: UsageBound,
}

impl RequestFields {
    /// Reads a call to `endpoint`.
    pub(crate) fn read(endpoint: ModelEndpoint, path: &str, body: &[u8]) -> Result<Self, CallRefusal> {
        let fields = ParsedBody::read(body).map_err(|error| CallRefusal::BodyInvalid(error.to_string()))?;
        let bound = fields.bound(body.len());
        if let Some((model, endpoint)) = ModelEndpoint::in_gemini_path(path) {
            return Ok(Self {
                model: model.to_owned(),
                stream: endpoint == ModelEndpoint::StreamGenerateContent,
                bound,
            });
        }
        let stream = fields.stream.unwrap_or(false) && endpoint.is_charged();
        let model = fields.model.ok_or_else(|| CallRefusal::BodyInvalid("it names no `model`".to_owned()))?;
        Ok(Self { model, stream, bound })
    }
}

impl ParsedBody {
    fn bound(&self, length: usize) -> UsageBound {
        let ExternalInputs { beyond, hour_cache } = self.external_inputs;
        let bytes = (length as u64).saturating_add(ADDED_TOKENS);
        let generation = self.generation.as_ref();
        let asked = [
            self.max_tokens,
            self.max_completion_tokens,
            self.max_output_tokens,
            generation.and_then(|generation| generation.max_output_tokens),
        ];
        // Which of them the upstream obeys is its own business: the largest bounds them all.
        let output_tokens = asked.into_iter().flatten().map(count).max();
        let answers = [self.n, generation.and_then(|generation| generation.candidates)];
        UsageBound {
            input_tokens: if beyond { bytes.max(LONGEST_PROMPT) } else { bytes },
            output_tokens,
            answers: answers.into_iter().flatten().map(count).max().unwrap_or(1).max(1),
            hour_cache,
        }
    }
}

/// A number as clients write it, `1.0e3` included, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast stays at the largest number")]
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
    fn model_and_stream_are_found_among_the_rest() {
        let ask = read(r#"{"messages":[{"content":"{\"model\":\"x\"}"}],"model":"claude-\u0061","stream":true}"#);
        let ask = ask.unwrap();
        assert_eq!((ask.model.as_str(), ask.stream), ("claude-a", true));
    }

    #[test]
    fn what_two_parsers_could_read_differently_is_refused() {
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
    fn the_most_a_call_can_use_is_read_off_its_request() {
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
