//! An answer of a script with every hole filled, before it takes the shape of an API.

use std::time::Duration;

use base::{Digest, encode_hex};
use protocol::Usage;
use serde_json::{Map, Value};

use super::{
    conversation::Conversation,
    document::{Failure, Pace, Part, Rule, StopReason, Tokens},
    pattern::Captures,
    template,
};

/// Characters a token stands for, where the script gives no counts.
const CHARS_A_TOKEN: usize = 4;

/// What is answered.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    /// The same for the same request: what is played twice is the same twice.
    pub(super) id: String,
    pub(super) model: String,
    pub(super) parts: Vec<Spoken>,
    pub(super) stop_reason: StopReason,
    pub(super) usage: Usage,
    pub(super) pace: Pace,
}

/// One piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Spoken {
    Text(String),
    Thinking(String),
    Tool { id: String, name: String, input: Map<String, Value> },
    Wait(Duration),
    Raw(String),
    Fail(Failure),
    Cut,
    Hang,
}

impl Reply {
    /// What `rule` answers with `parts`.
    pub(super) fn new(
        rule: &Rule,
        parts: &[Part],
        conversation: &Conversation,
        captures: &Captures,
        body: &[u8],
    ) -> Self {
        let id = encode_hex(&Digest::of(body).to_bytes()[..12]);
        let parts: Vec<Spoken> =
            parts.iter().enumerate().map(|(index, part)| speak(part, captures, &id, index)).collect();
        let has_tool = parts.iter().any(|part| matches!(part, Spoken::Tool { .. }));
        let stop_reason = rule.stop_reason.unwrap_or(if has_tool { StopReason::ToolUse } else { StopReason::EndTurn });
        let usage = rule.usage.map_or_else(|| count(conversation, &parts), Usage::from);
        Self { id, model: conversation.model.clone(), parts, stop_reason, usage, pace: rule.pace }
    }
}

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
        Self {
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            cache_read_tokens: tokens.cache_read,
            cache_write_tokens: tokens.cache_write,
            cache_write_1h_tokens: tokens.cache_write_1h,
        }
    }
}

/// Tokens of the prompt, where the script gives no count.
pub(super) fn count_input(conversation: &Conversation) -> u64 {
    conversation.input_chars.div_ceil(CHARS_A_TOKEN).max(1) as u64
}

fn count(conversation: &Conversation, parts: &[Spoken]) -> Usage {
    let written: usize = parts
        .iter()
        .map(|part| match part {
            Spoken::Text(text) | Spoken::Thinking(text) | Spoken::Raw(text) => text.chars().count(),
            Spoken::Tool { name, input, .. } => {
                name.chars().count() + Value::Object(input.clone()).to_string().chars().count()
            }
            Spoken::Wait(_) | Spoken::Fail(_) | Spoken::Cut | Spoken::Hang => 0,
        })
        .sum();
    Usage {
        input_tokens: count_input(conversation),
        output_tokens: written.div_ceil(CHARS_A_TOKEN).max(1) as u64,
        ..Usage::default()
    }
}

fn speak(part: &Part, captures: &Captures, id: &str, index: usize) -> Spoken {
    let fill = |text: &str| template::fill(text, captures);
    match part {
        Part::Text(text) => Spoken::Text(fill(text)),
        Part::Thinking(text) => Spoken::Thinking(fill(text)),
        Part::Raw(text) => Spoken::Raw(fill(text)),
        Part::Tool(call) => Spoken::Tool {
            id: format!("{id}_{index}"),
            name: call.name.clone(),
            input: call
                .input
                .iter()
                .map(|(name, value)| (name.clone(), template::fill_value(value, captures)))
                .collect(),
        },
        Part::DelayMs(millis) => Spoken::Wait(Duration::from_millis(*millis)),
        Part::Fail(failure) => Spoken::Fail(Failure { message: fill(&failure.message), ..failure.clone() }),
        Part::Cut => Spoken::Cut,
        Part::Hang => Spoken::Hang,
    }
}
