//! The scripted model: an upstream that answers from a script, without a network.
//!
//! The same request always gets the same bytes. A request that no rule matches gets an error in the shape of the
//! caller's API, as from a vendor.
//!
//! Flow: `conversation` reads the request, `script` holds the rules, `reply` fills in the answer of the matching rule,
//! `encoder` writes the reply in the caller's API, `output` sends it over time.

mod conversation;
mod encoder;
mod output;
mod pattern;
mod reply;
mod script;
mod template;

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    endpoint::ModelEndpoint,
    splice,
    upstream::{Upstream, UpstreamFailure, UpstreamRequest, UpstreamResponse},
};
use conversation::Conversation;
use output::OutputStep;
use pattern::{Captures, TextPattern};
use reply::ScriptedReply;
use script::{RuleCondition, ScriptRule, ScriptedError};

pub use script::{ModelScript, ModelScriptError};

/// The script of `viv demo` and of every session without a configured model.
pub const DEMO_SCRIPT: &str = include_str!("../scripts/demo.yaml");

/// An upstream that answers from a script.
#[derive(Debug)]
pub struct ScriptedUpstream {
    script: ModelScript,
    /// How often each rule has answered, in the order of `script.rules`.
    answer_counts: Vec<AtomicU64>,
}

impl ScriptedUpstream {
    /// Creates an upstream for `script`; no rule has answered yet.
    pub fn new(script: ModelScript) -> Self {
        let answer_counts = script.rules.iter().map(|_| AtomicU64::new(0)).collect();
        Self { script, answer_counts }
    }

    /// Creates an upstream for [`DEMO_SCRIPT`].
    pub fn demo() -> Result<Self, ModelScriptError> {
        ModelScript::parse(DEMO_SCRIPT).map(Self::new)
    }

    /// Returns the response of the first matching rule, or an error response.
    fn respond(&self, request: &UpstreamRequest) -> UpstreamResponse {
        let refuse = |status, message: String| error_response(request, &ScriptedError { status, kind: None, message });
        let conversation = match Conversation::read(request) {
            Ok(conversation) => conversation,
            Err(error) => return refuse(400, format!("cannot parse the request body: {error}")),
        };
        if request.endpoint == ModelEndpoint::CountTokens {
            return json_response(
                StatusCode::OK,
                &json!({"input_tokens": reply::estimate_input_tokens(&conversation)}),
            );
        }
        let Some((rule, captures)) = self.choose_rule(&conversation) else {
            return refuse(404, no_match(&conversation));
        };
        match (&rule.answer, &rule.error) {
            (Some(parts), _) => {
                reply_response(request, &ScriptedReply::new(rule, parts, &conversation, &captures, &request.body))
            }
            (None, Some(failure)) => {
                let message = template::fill(&failure.message, &captures);
                error_response(request, &ScriptedError { message, ..failure.clone() })
            }
            (None, None) => refuse(500, "the rule has neither `answer` nor `error`".to_owned()),
        }
    }

    /// Returns the first matching rule that has answered fewer than `times` times, and counts the answer.
    fn choose_rule(&self, conversation: &Conversation) -> Option<(&ScriptRule, Captures)> {
        self.script.rules.iter().zip(&self.answer_counts).find_map(|(rule, answer_count)| {
            let captures = rule.when.matches(conversation)?;
            let limit = rule.times.unwrap_or(u64::MAX);
            let next = |count: u64| (count < limit).then_some(count + 1);
            answer_count.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
            Some((rule, captures))
        })
    }
}

impl Upstream for ScriptedUpstream {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn models(&self) -> Vec<String> {
        self.script.models.clone()
    }

    fn is_free(&self) -> bool {
        true
    }

    fn send(&self, request: UpstreamRequest) -> BoxFuture<'_, Result<UpstreamResponse, UpstreamFailure>> {
        async move { Ok(self.respond(&request)) }.boxed()
    }
}

impl RuleCondition {
    /// Returns the captured texts if every condition holds.
    fn matches(&self, conversation: &Conversation) -> Option<Captures> {
        let mut captures = Captures::from(
            [
                ("prompt", conversation.prompt.clone()),
                ("tool_result", conversation.tool_result.clone().unwrap_or_default()),
                ("model", conversation.model.clone()),
                ("turn", conversation.turn.to_string()),
                ("step", conversation.step.to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let mut pattern_matches = |pattern: &Option<TextPattern>, text: Option<&str>| match (pattern, text) {
            (None, _) => true,
            (Some(pattern), Some(text)) => pattern.matches(text, &mut captures),
            (Some(_), None) => false,
        };
        let matches = pattern_matches(&self.prompt, Some(&conversation.prompt))
            && pattern_matches(&self.conversation, Some(&conversation.text))
            && pattern_matches(&self.tool_result, conversation.tool_result.as_deref())
            && pattern_matches(&self.model, Some(&conversation.model))
            && self.turn.is_none_or(|turn| turn == conversation.turn)
            && self.step.is_none_or(|step| step == conversation.step);
        matches.then_some(captures)
    }
}

fn no_match(conversation: &Conversation) -> String {
    let Conversation { model, turn, step, .. } = conversation;
    format!("no rule of the model script matches this request (model `{model}`, turn {turn}, step {step})")
}

fn reply_response(request: &UpstreamRequest, reply: &ScriptedReply) -> UpstreamResponse {
    let mut encoder = encoder::encoder_for(request.endpoint);
    // Without `alt=sse`, Gemini streams one JSON list of documents.
    let is_list =
        request.endpoint == ModelEndpoint::StreamGenerateContent && !request.path_and_query.contains("alt=sse");
    if request.stream && !is_list {
        let hide_usage = request.endpoint == ModelEndpoint::ChatCompletions && !asks_for_usage(&request.body);
        let events = encoder::encode_stream(&mut *encoder, reply);
        return UpstreamResponse { hide_usage, ..response(StatusCode::OK, "text/event-stream", events) };
    }
    let document = encoder.encode_document(reply);
    let document = if is_list { json!([document]) } else { document };
    response(StatusCode::OK, "application/json", output::document_steps(reply, &document.to_string()))
}

fn asks_for_usage(body: &Bytes) -> bool {
    splice::ask_for_usage(body).is_ok_and(|asked| asked.is_none())
}

fn error_response(request: &UpstreamRequest, failure: &ScriptedError) -> UpstreamResponse {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_response(status, &encoder::encoder_for(request.endpoint).encode_error(failure))
}

fn json_response(status: StatusCode, body: &Value) -> UpstreamResponse {
    response(status, "application/json", vec![OutputStep::Bytes(body.to_string().into())])
}

fn response(status: StatusCode, kind: &'static str, steps: Vec<OutputStep>) -> UpstreamResponse {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    UpstreamResponse { status, headers, frames: output::stream_steps(steps), hide_usage: false }
}
