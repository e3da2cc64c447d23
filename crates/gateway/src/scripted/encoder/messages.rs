//! Encoder for the Anthropic Messages API.

use http::StatusCode;
use protocol::Usage;
use serde_json::{Value, json};

use super::{EventWriter, ResponseEncoder};
use crate::scripted::{
    reply::{ReplyPart, ScriptedReply},
    script::{ScriptedError, ScriptedStopReason},
};

/// Placeholder for the vendor's signature of a thinking block; only the vendor can check signatures.
const SIGNATURE: &str = "c2NyaXB0ZWQ=";

/// Numbers the content blocks of a stream.
#[derive(Default)]
pub(super) struct MessagesEncoder {
    blocks: usize,
}

impl ResponseEncoder for MessagesEncoder {
    fn encode_document(&self, reply: &ScriptedReply) -> Value {
        let content: Vec<Value> = reply.parts.iter().filter_map(encode_content_block).collect();
        json!({
            "id": format!("msg_{}", reply.id),
            "type": "message",
            "role": "assistant",
            "model": reply.model,
            "content": content,
            "stop_reason": stop_reason(reply.stop_reason),
            "stop_sequence": null,
            "usage": encode_usage(&reply.usage),
        })
    }

    fn encode_error(&self, failure: &ScriptedError) -> Value {
        let kind = failure.kind.clone().unwrap_or_else(|| {
            let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            crate::refusal::anthropic_type(status).to_owned()
        });
        json!({"type": "error", "error": {"type": kind, "message": failure.message}})
    }

    fn begin(&mut self, reply: &ScriptedReply, out: &mut EventWriter) {
        let mut message = self.encode_document(reply);
        message["content"] = json!([]);
        message["stop_reason"] = Value::Null;
        message["usage"] = encode_usage(&Usage { output_tokens: reply.usage.output_tokens.min(1), ..reply.usage });
        write_typed_event(out, "message_start", json!({"message": message}));
    }

    fn encode_block(&mut self, part: &ReplyPart, reply: &ScriptedReply, out: &mut EventWriter) {
        let (start, kind, field, text) = match part {
            ReplyPart::Thinking(text) => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                "thinking_delta",
                "thinking",
                text.clone(),
            ),
            ReplyPart::Tool { id, name, input } => (
                json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": name, "input": {}}),
                "input_json_delta",
                "partial_json",
                Value::Object(input.clone()).to_string(),
            ),
            ReplyPart::Text(text) => (json!({"type": "text", "text": ""}), "text_delta", "text", text.clone()),
            _ => return,
        };
        let index = self.blocks;
        self.blocks += 1;
        write_typed_event(out, "content_block_start", json!({"index": index, "content_block": start}));
        out.write_paced(&text, reply, |out, chunk| {
            let mut delta = json!({"type": kind});
            delta[field] = chunk.into();
            write_typed_event(out, "content_block_delta", json!({"index": index, "delta": delta}));
        });
        if matches!(part, ReplyPart::Thinking(_)) {
            let delta = json!({"type": "signature_delta", "signature": SIGNATURE});
            write_typed_event(out, "content_block_delta", json!({"index": index, "delta": delta}));
        }
        write_typed_event(out, "content_block_stop", json!({"index": index}));
    }

    fn encode_failure(&mut self, failure: &ScriptedError, out: &mut EventWriter) {
        out.write_named_event("error", &self.encode_error(failure));
    }

    fn end(&mut self, reply: &ScriptedReply, out: &mut EventWriter) {
        let delta = json!({"stop_reason": stop_reason(reply.stop_reason), "stop_sequence": null});
        write_typed_event(out, "message_delta", json!({"delta": delta, "usage": encode_usage(&reply.usage)}));
        write_typed_event(out, "message_stop", json!({}));
    }
}

fn write_typed_event(out: &mut EventWriter, kind: &str, mut data: Value) {
    data["type"] = kind.into();
    out.write_named_event(kind, &data);
}

fn encode_content_block(part: &ReplyPart) -> Option<Value> {
    match part {
        ReplyPart::Text(text) => Some(json!({"type": "text", "text": text})),
        ReplyPart::Thinking(text) => Some(json!({"type": "thinking", "thinking": text, "signature": SIGNATURE})),
        ReplyPart::Tool { id, name, input } => {
            Some(json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": name, "input": input}))
        }
        _ => None,
    }
}

fn encode_usage(usage: &Usage) -> Value {
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

fn stop_reason(reason: ScriptedStopReason) -> &'static str {
    match reason {
        ScriptedStopReason::EndTurn => "end_turn",
        ScriptedStopReason::ToolUse => "tool_use",
        ScriptedStopReason::MaxTokens => "max_tokens",
        ScriptedStopReason::StopSequence => "stop_sequence",
        ScriptedStopReason::Refusal => "refusal",
    }
}
