//! The answer of a script rule with every placeholder filled in, independent of the API.

use std::time::Duration;

use base::{Digest, encode_hex};
use protocol::Usage;
use serde_json::{Map, Value};

use super::{
    conversation::Conversation,
    pattern::Captures,
    script::{AnswerPart, ScriptRule, ScriptedError, ScriptedStopReason, ScriptedUsage, StreamPace},
    template,
};

/// Characters per token, for replies without `usage` in the script.
const CHARS_PER_TOKEN: usize = 4;

/// A reply to one request.
#[derive(Debug, Clone)]
pub(super) struct ScriptedReply {
    /// Derived from the request body, so that equal requests get equal replies.
    pub(super) id: String,
    pub(super) model: String,
    pub(super) parts: Vec<ReplyPart>,
    pub(super) stop_reason: ScriptedStopReason,
    pub(super) usage: Usage,
    pub(super) pace: StreamPace,
}

/// One part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReplyPart {
    Text(String),
    Thinking(String),
    Tool { id: String, name: String, input: Map<String, Value> },
    Wait(Duration),
    Raw(String),
    Fail(ScriptedError),
    Cut,
    Hang,
}

impl ScriptedReply {
    /// Fills in `parts`, the answer of `rule`.
    pub(super) fn new(
        rule: &ScriptRule,
        parts: &[AnswerPart],
        conversation: &Conversation,
        captures: &Captures,
        body: &[u8],
    ) -> Self {
        let id = encode_hex(&Digest::of(body).to_bytes()[..12]);
        let parts: Vec<ReplyPart> =
            parts.iter().enumerate().map(|(index, part)| fill_part(part, captures, &id, index)).collect();
        let has_tool = parts.iter().any(|part| matches!(part, ReplyPart::Tool { .. }));
        let stop_reason = rule.stop_reason.unwrap_or(if has_tool {
            ScriptedStopReason::ToolUse
        } else {
            ScriptedStopReason::EndTurn
        });
        let usage = rule.usage.map_or_else(|| estimate_usage(conversation, &parts), Usage::from);
        Self { id, model: conversation.model.clone(), parts, stop_reason, usage, pace: rule.pace }
    }
}

impl From<ScriptedUsage> for Usage {
    fn from(tokens: ScriptedUsage) -> Self {
        Self {
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            cache_read_tokens: tokens.cache_read,
            cache_write_tokens: tokens.cache_write,
            cache_write_1h_tokens: tokens.cache_write_1h,
        }
    }
}

/// Returns the estimated input tokens of a conversation.
pub(super) fn estimate_input_tokens(conversation: &Conversation) -> u64 {
    conversation.input_chars.div_ceil(CHARS_PER_TOKEN).max(1) as u64
}

fn estimate_usage(conversation: &Conversation, parts: &[ReplyPart]) -> Usage {
    let output_chars: usize = parts
        .iter()
        .map(|part| match part {
            ReplyPart::Text(text) | ReplyPart::Thinking(text) | ReplyPart::Raw(text) => text.chars().count(),
            ReplyPart::Tool { name, input, .. } => {
                name.chars().count() + Value::Object(input.clone()).to_string().chars().count()
            }
            ReplyPart::Wait(_) | ReplyPart::Fail(_) | ReplyPart::Cut | ReplyPart::Hang => 0,
        })
        .sum();
    Usage {
        input_tokens: estimate_input_tokens(conversation),
        output_tokens: output_chars.div_ceil(CHARS_PER_TOKEN).max(1) as u64,
        ..Usage::default()
    }
}

fn fill_part(part: &AnswerPart, captures: &Captures, id: &str, index: usize) -> ReplyPart {
    let fill = |text: &str| template::fill(text, captures);
    match part {
        AnswerPart::Text(text) => ReplyPart::Text(fill(text)),
        AnswerPart::Thinking(text) => ReplyPart::Thinking(fill(text)),
        AnswerPart::Raw(text) => ReplyPart::Raw(fill(text)),
        AnswerPart::Tool(call) => ReplyPart::Tool {
            id: format!("{id}_{index}"),
            name: call.name.clone(),
            input: call
                .input
                .iter()
                .map(|(name, value)| (name.clone(), template::fill_value(value, captures)))
                .collect(),
        },
        AnswerPart::DelayMs(millis) => ReplyPart::Wait(Duration::from_millis(*millis)),
        AnswerPart::Fail(failure) => {
            ReplyPart::Fail(ScriptedError { message: fill(&failure.message), ..failure.clone() })
        }
        AnswerPart::Cut => ReplyPart::Cut,
        AnswerPart::Hang => ReplyPart::Hang,
    }
}
