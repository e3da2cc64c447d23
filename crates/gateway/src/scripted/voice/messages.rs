//! The voice of the Anthropic Messages API.

use http::StatusCode;
use protocol::Usage;
use serde_json::{Value, json};

use super::{Out, Voice};
use crate::scripted::{
    document::{Failure, StopReason},
    reply::{Reply, Spoken},
};

/// Stands where a vendor signs a thought; only the vendor could check it.
const SIGNATURE: &str = "c2NyaXB0ZWQ=";

/// Counts the blocks of a stream.
#[derive(Default)]
pub(super) struct Messages {
    blocks: usize,
}

impl Voice for Messages {
    fn document(&self, reply: &Reply) -> Value {
        let content: Vec<Value> = reply.parts.iter().filter_map(block).collect();
        json!({
            "id": format!("msg_{}", reply.id),
            "type": "message",
            "role": "assistant",
            "model": reply.model,
            "content": content,
            "stop_reason": stop_reason(reply.stop_reason),
            "stop_sequence": null,
            "usage": usage(&reply.usage),
        })
    }

    fn error(&self, failure: &Failure) -> Value {
        let kind = failure.kind.clone().unwrap_or_else(|| {
            let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            crate::refusal::anthropic_type(status).to_owned()
        });
        json!({"type": "error", "error": {"type": kind, "message": failure.message}})
    }

    fn begin(&mut self, reply: &Reply, out: &mut Out) {
        let mut message = self.document(reply);
        message["content"] = json!([]);
        message["stop_reason"] = Value::Null;
        message["usage"] = usage(&Usage { output_tokens: reply.usage.output_tokens.min(1), ..reply.usage });
        emit(out, "message_start", json!({"message": message}));
    }

    fn block(&mut self, part: &Spoken, reply: &Reply, out: &mut Out) {
        let (start, kind, field, text) = match part {
            Spoken::Thinking(text) => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                "thinking_delta",
                "thinking",
                text.clone(),
            ),
            Spoken::Tool { id, name, input } => (
                json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": name, "input": {}}),
                "input_json_delta",
                "partial_json",
                Value::Object(input.clone()).to_string(),
            ),
            Spoken::Text(text) => (json!({"type": "text", "text": ""}), "text_delta", "text", text.clone()),
            _ => return,
        };
        let index = self.blocks;
        self.blocks += 1;
        emit(out, "content_block_start", json!({"index": index, "content_block": start}));
        out.paced(&text, reply, |out, chunk| {
            let mut delta = json!({"type": kind});
            delta[field] = chunk.into();
            emit(out, "content_block_delta", json!({"index": index, "delta": delta}));
        });
        if matches!(part, Spoken::Thinking(_)) {
            let delta = json!({"type": "signature_delta", "signature": SIGNATURE});
            emit(out, "content_block_delta", json!({"index": index, "delta": delta}));
        }
        emit(out, "content_block_stop", json!({"index": index}));
    }

    fn fail(&mut self, failure: &Failure, out: &mut Out) {
        out.named("error", &self.error(failure));
    }

    fn end(&mut self, reply: &Reply, out: &mut Out) {
        let delta = json!({"stop_reason": stop_reason(reply.stop_reason), "stop_sequence": null});
        emit(out, "message_delta", json!({"delta": delta, "usage": usage(&reply.usage)}));
        emit(out, "message_stop", json!({}));
    }
}

fn emit(out: &mut Out, kind: &str, mut data: Value) {
    data["type"] = kind.into();
    out.named(kind, &data);
}

fn block(part: &Spoken) -> Option<Value> {
    match part {
        Spoken::Text(text) => Some(json!({"type": "text", "text": text})),
        Spoken::Thinking(text) => Some(json!({"type": "thinking", "thinking": text, "signature": SIGNATURE})),
        Spoken::Tool { id, name, input } => {
            Some(json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": name, "input": input}))
        }
        _ => None,
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
    })
}

fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::EndTurn => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::MaxTokens => "max_tokens",
        StopReason::StopSequence => "stop_sequence",
        StopReason::Refusal => "refusal",
    }
}
