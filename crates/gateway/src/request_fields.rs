//! The fields of a request that the gateway needs: model, stream flag and upper bound of the usage.
//!
//! The body is only read here. It is forwarded byte for byte.

mod parser;
mod reasoning;
mod refused;
mod server_tools;

use crate::{endpoint::ModelEndpoint, external_inputs::ExternalInputs, price::UsageBound, refusal::CallRefusal};
use parser::ParsedBody;

pub(crate) use reasoning::ReasoningRequest;
pub(crate) use server_tools::ServerTools;

/// The most tokens that a vendor adds to a prompt, for tool instructions and message separators.
const ADDED_TOKENS: u64 = 4_096;
/// The longest prompt that a model accepts, for a request that does not contain its whole prompt.
const MAX_PROMPT_TOKENS: u64 = 1 << 20;
/// The largest limit of an answer that is taken as it is. No model writes that much.
const MAX_OUTPUT_TOKENS: u64 = 1 << 24;
/// The most answers of one call.
const MAX_ANSWERS: u64 = 128;

/// The fields of a request that decide who answers it and how much it can cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestFields {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) bound: UsageBound,
    /// The requested service tier.
    pub(crate) service_tier: Option<String>,
    pub(crate) reasoning: ReasoningRequest,
    /// The most web searches by the vendor.
    pub(crate) searches: u64,
    /// Whether the prompt can become longer than the vendor reports at the start of a stream.
    pub(crate) open_prompt: bool,
}

impl RequestFields {
    /// Reads the fields from the body, and for Gemini from the path.
    ///
    /// Fails if the body is invalid, names no model, or has a field that could change the price unseen.
    pub(crate) fn read(endpoint: ModelEndpoint, path: &str, body: &[u8]) -> Result<Self, CallRefusal> {
        let parsed = ParsedBody::read(body).map_err(|error| CallRefusal::BodyInvalid(error.to_string()))?;
        if let Some((field, reason)) = parsed.refused {
            return Err(CallRefusal::FieldRefused { field: field.to_owned(), reason: reason.to_owned() });
        }
        let bound = parsed.bound(body.len())?;
        let stream = parsed.stream.unwrap_or(false) && endpoint.is_charged();
        let (model, stream) = match ModelEndpoint::in_gemini_path(path) {
            Some((model, endpoint)) => (Some(model.to_owned()), endpoint == ModelEndpoint::StreamGenerateContent),
            None => (parsed.model, stream),
        };
        let model = model.ok_or_else(|| CallRefusal::BodyInvalid("missing field `model`".to_owned()))?;
        let ExternalInputs { extend_prompt, tools, .. } = parsed.external_inputs;
        if let Some(tool) = tools.unpriced.as_ref().filter(|_| endpoint.is_charged()) {
            let reason = format!("the price of the tool `{tool}` is not known");
            return Err(CallRefusal::FieldRefused { field: "tools".to_owned(), reason });
        }
        let searches = tools.max_searches().min(parsed.max_tool_calls.and_then(count).unwrap_or(u64::MAX));
        let (service_tier, reasoning) = (parsed.service_tier, parsed.reasoning);
        Ok(Self { model, stream, bound, service_tier, reasoning, searches, open_prompt: extend_prompt })
    }
}

impl ParsedBody {
    fn bound(&self, length: usize) -> Result<UsageBound, CallRefusal> {
        let bytes = (length as u64).saturating_add(ADDED_TOKENS);
        let generation = self.generation.as_ref();
        let limits = [
            self.max_tokens,
            self.max_completion_tokens,
            self.max_output_tokens,
            generation.and_then(|generation| generation.max_output_tokens),
        ];
        let is_limit = |tokens: &u64| *tokens <= MAX_OUTPUT_TOKENS;
        let limits: Vec<Option<u64>> =
            limits.into_iter().flatten().map(|limit| count(limit).filter(is_limit)).collect();
        // Upstreams differ in which field they obey, so the largest value is the bound. A value that is not a limit,
        // such as -1, leaves the length to the model.
        let output_tokens = if limits.contains(&None) { None } else { limits.into_iter().flatten().max() };
        let candidates = generation.and_then(|generation| generation.candidates);
        Ok(UsageBound {
            input_tokens: if self.external_inputs.extend_prompt { bytes.max(MAX_PROMPT_TOKENS) } else { bytes },
            output_tokens,
            answers: answers("n", self.n)?
                .max(answers("best_of", self.best_of)?)
                .max(answers("candidateCount", candidates)?),
            hour_cache: self.external_inputs.hour_cache,
        })
    }
}

/// Returns the number of answers that a field asks for; 1 if it is absent. Fails if the number is invalid.
fn answers(field: &str, number: Option<f64>) -> Result<u64, CallRefusal> {
    let Some(number) = number else { return Ok(1) };
    count(number).filter(|answers| *answers <= MAX_ANSWERS).ok_or_else(|| CallRefusal::FieldRefused {
        field: field.to_owned(),
        reason: format!("its value is {number}, and it must be a whole number from 1 to {MAX_ANSWERS}"),
    })
}

/// Returns a positive whole number as clients write it, such as `1.0e3`; `None` for any other number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked before")]
fn count(number: f64) -> Option<u64> {
    let is_count = number >= 1.0 && number.fract() == 0.0 && number <= 9e15;
    is_count.then_some(number as u64)
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
        for limit in ["-1", "0", "0.5", "1e300", "99999999999", "null"] {
            let body = format!(r#"{{"model":"m","max_tokens":{limit},"max_output_tokens":{limit}}}"#);
            assert_eq!(bound(&body).output_tokens, None, "{limit}");
            let gemini = format!(r#"{{"model":"m","generationConfig":{{"maxOutputTokens":{limit}}}}}"#);
            assert_eq!(bound(&gemini).output_tokens, None, "{limit}");
        }
        assert_eq!(bound(r#"{"model":"m","max_tokens":5,"max_completion_tokens":-1}"#).output_tokens, None);
        assert_eq!(bound(r#"{"model":"m","max_tokens":5,"n":2,"best_of":100}"#).answers, 100);
        assert_eq!(bound(r#"{"model":"m","previous_response_id":"r"}"#).input_tokens, 1 << 20);
    }

    #[track_caller]
    fn check_refused(body: &str, field: &str) {
        match RequestFields::read(ModelEndpoint::ChatCompletions, "/v1/chat/completions", body.as_bytes()) {
            Err(CallRefusal::FieldRefused { field: refused, .. }) => assert_eq!(refused, field, "{body}"),
            other => panic!("`{body}` gave {other:?}"),
        }
    }

    #[test]
    fn field_that_can_change_the_price_is_refused_by_name() {
        for field in ["models", "fallbacks", "route", "provider", "extra_body", "plugins", "api_base", "container"] {
            check_refused(&format!(r#"{{"model":"m","{field}":["x"]}}"#), field);
            assert!(read(&format!(r#"{{"model":"m","{field}":null}}"#)).is_some(), "{field}");
        }
        check_refused(r#"{"model":"m","MODELS":["x"]}"#, "models");
        check_refused(r#"{"model":"m","n":0}"#, "n");
        check_refused(r#"{"model":"m","best_of":1000}"#, "best_of");
        check_refused(r#"{"model":"m","speed":"fast"}"#, "speed");
        check_refused(r#"{"model":"m","modalities":["text","audio"]}"#, "modalities");
        check_refused(r#"{"model":"m","background":true}"#, "background");
        check_refused(r#"{"model":"m","tools":[{"type":"image_generation"}]}"#, "tools");
        check_refused(r#"{"model":"m","tools":[{"googleMaps":{}}]}"#, "tools");
        check_refused(
            r#"{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"file_search"}]}]}"#,
            "tools",
        );
        check_refused(r#"{"model":"m","context_management":{"edits":[{"type":"compact_20260112"}]}}"#, "tools");
    }

    #[test]
    fn searches_are_bounded_by_the_limits_of_the_request() {
        let searches = |body: &str| read(body).unwrap().searches;
        assert_eq!(searches(r#"{"model":"m","tools":[{"type":"web_search_20250305","max_uses":8}]}"#), 8);
        assert_eq!(searches(r#"{"model":"m","tools":[{"type":"web_search"}],"max_tool_calls":3}"#), 3);
        assert_eq!(searches(r#"{"model":"m","tools":[{"googleSearch":{}}]}"#), 32);
        assert_eq!(searches(r#"{"model":"m","tools":[{"name":"web_search","input_schema":{"type":"object"}}]}"#), 0);
    }
}
