//! The built-in model: plays a script, the same way each time, without a network.
//!
//! It answers demos and tests. What it cannot match it says so, as a vendor would: with an error.

mod conversation;
mod document;
mod emit;
mod pattern;
mod reply;
mod template;
mod voice;

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
use document::{Failure, Rule, When};
use emit::Emission;
use pattern::{Captures, Pattern};
use reply::Reply;

pub use document::{ModelScript, ModelScriptError};

/// The script of `viv demo`, and of every session that names no other model.
pub const DEMO_SCRIPT: &str = include_str!("../scripts/demo.yaml");

/// An upstream that plays a script.
#[derive(Debug)]
pub struct ScriptedUpstream {
    script: ModelScript,
    /// How often each rule has answered.
    answered: Vec<AtomicU64>,
}

impl ScriptedUpstream {
    /// Plays `script`, from its beginning.
    pub fn new(script: ModelScript) -> Self {
        let answered = script.rules.iter().map(|_| AtomicU64::new(0)).collect();
        Self { script, answered }
    }

    /// Plays the script that is built in.
    pub fn demo() -> Result<Self, ModelScriptError> {
        ModelScript::parse(DEMO_SCRIPT).map(Self::new)
    }

    fn answer(&self, request: &UpstreamRequest) -> UpstreamResponse {
        let refuse = |status, message: String| fail(request, &Failure { status, kind: None, message });
        let conversation = match Conversation::read(request) {
            Ok(conversation) => conversation,
            Err(error) => return refuse(400, format!("the request makes no sense: {error}")),
        };
        if request.endpoint == ModelEndpoint::CountTokens {
            return json_answer(StatusCode::OK, &json!({"input_tokens": reply::count_input(&conversation)}));
        }
        let Some((rule, captures)) = self.choose(&conversation) else {
            return refuse(404, "no rule of the script matches this request".to_owned());
        };
        match (&rule.answer, &rule.error) {
            (Some(parts), _) => render(request, &Reply::new(rule, parts, &conversation, &captures, &request.body)),
            (None, Some(failure)) => {
                let message = template::fill(&failure.message, &captures);
                fail(request, &Failure { message, ..failure.clone() })
            }
            (None, None) => refuse(500, "the rule has no answer".to_owned()),
        }
    }

    /// The first rule that matches and has not answered too often.
    fn choose(&self, conversation: &Conversation) -> Option<(&Rule, Captures)> {
        self.script.rules.iter().zip(&self.answered).find_map(|(rule, answered)| {
            let captures = rule.when.matches(conversation)?;
            let limit = rule.times.unwrap_or(u64::MAX);
            let next = |count: u64| (count < limit).then_some(count + 1);
            answered.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
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
        async move { Ok(self.answer(&request)) }.boxed()
    }
}

impl When {
    /// What is captured, if all that is asked is true.
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
        let mut fits = |pattern: &Option<Pattern>, text: Option<&str>| match (pattern, text) {
            (None, _) => true,
            (Some(pattern), Some(text)) => pattern.matches(text, &mut captures),
            (Some(_), None) => false,
        };
        let matches = fits(&self.prompt, Some(&conversation.prompt))
            && fits(&self.conversation, Some(&conversation.text))
            && fits(&self.tool_result, conversation.tool_result.as_deref())
            && fits(&self.model, Some(&conversation.model))
            && self.turn.is_none_or(|turn| turn == conversation.turn)
            && self.step.is_none_or(|step| step == conversation.step);
        matches.then_some(captures)
    }
}

fn render(request: &UpstreamRequest, reply: &Reply) -> UpstreamResponse {
    let mut voice = voice::of(request.endpoint);
    // Gemini streams a list of documents where events are not asked for.
    let is_list =
        request.endpoint == ModelEndpoint::StreamGenerateContent && !request.path_and_query.contains("alt=sse");
    if request.stream && !is_list {
        let hide_usage = request.endpoint == ModelEndpoint::ChatCompletions && !asks_for_usage(&request.body);
        let events = voice::stream(&mut *voice, reply);
        return UpstreamResponse { hide_usage, ..answer(StatusCode::OK, "text/event-stream", events) };
    }
    let document = voice.document(reply);
    let document = if is_list { json!([document]) } else { document };
    answer(StatusCode::OK, "application/json", emit::document(reply, &document.to_string()))
}

fn asks_for_usage(body: &Bytes) -> bool {
    splice::ask_for_usage(body).is_ok_and(|asked| asked.is_none())
}

fn fail(request: &UpstreamRequest, failure: &Failure) -> UpstreamResponse {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_answer(status, &voice::of(request.endpoint).error(failure))
}

fn json_answer(status: StatusCode, body: &Value) -> UpstreamResponse {
    answer(status, "application/json", vec![Emission::Bytes(body.to_string().into())])
}

fn answer(status: StatusCode, kind: &'static str, emissions: Vec<Emission>) -> UpstreamResponse {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    UpstreamResponse { status, headers, frames: emit::play(emissions), hide_usage: false }
}
