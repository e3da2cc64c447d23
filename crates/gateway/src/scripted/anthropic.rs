//! A script's answer in the words of the Anthropic Messages API.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use protocol::Usage;
use serde_json::{Value, json};

use super::{
    document::{Failure, StopReason},
    emit::{Emission, chunks},
    reply::{Reply, Spoken},
};

/// The answer as one document.
pub(super) fn document(reply: &Reply) -> Value {
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

/// The answer as a stream of events.
pub(super) fn stream(reply: &Reply) -> Vec<Emission> {
    let mut events = Events::default();
    let start = Usage { output_tokens: 1.min(reply.usage.output_tokens), ..reply.usage };
    let mut message = document(reply);
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    message["usage"] = usage(&start);
    events.emit("message_start", json!({"message": message}));
    for part in &reply.parts {
        match part {
            Spoken::Wait(time) => events.0.push(Emission::Wait(*time)),
            Spoken::Raw(raw) => events.0.push(Emission::Bytes(Bytes::from(raw.clone()))),
            Spoken::Cut => events.0.push(Emission::Cut),
            Spoken::Hang => events.0.push(Emission::Hang),
            Spoken::Fail(failure) => {
                events.emit("error", json!({"error": error(failure)}));
                return events.0;
            }
            Spoken::Text(_) | Spoken::Thinking(_) | Spoken::Tool { .. } => events.block(part, reply),
        }
    }
    let delta = json!({"stop_reason": stop_reason(reply.stop_reason), "stop_sequence": null});
    events.emit("message_delta", json!({"delta": delta, "usage": usage(&reply.usage)}));
    events.emit("message_stop", json!({}));
    events.0
}

/// An error document.
pub(super) fn error_document(failure: &Failure) -> Value {
    json!({"type": "error", "error": error(failure)})
}

fn error(failure: &Failure) -> Value {
    let kind = failure.kind.clone().unwrap_or_else(|| {
        let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        crate::refusal::anthropic_type(status).to_owned()
    });
    json!({"type": kind, "message": failure.message})
}

#[derive(Default)]
struct Events(Vec<Emission>);

impl Events {
    fn emit(&mut self, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        self.0.push(Emission::Bytes(Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))));
    }

    fn block(&mut self, part: &Spoken, reply: &Reply) {
        let index = self.blocks_so_far();
        let (start, field, text) = match part {
            Spoken::Thinking(text) => {
                (json!({"type": "thinking", "thinking": "", "signature": ""}), "thinking", text.clone())
            }
            Spoken::Tool { id, name, input } => (
                json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": name, "input": {}}),
                "partial_json",
                Value::Object(input.clone()).to_string(),
            ),
            Spoken::Text(text) => (json!({"type": "text", "text": ""}), "text", text.clone()),
            _ => return,
        };
        self.emit("content_block_start", json!({"index": index, "content_block": start}));
        let kind = if field == "partial_json" { "input_json_delta".to_owned() } else { format!("{field}_delta") };
        for chunk in chunks(&text, reply.pace) {
            if reply.pace.delay_ms > 0 {
                self.0.push(Emission::Wait(Duration::from_millis(reply.pace.delay_ms)));
            }
            let mut delta = json!({"type": kind});
            delta[field] = chunk.into();
            self.emit("content_block_delta", json!({"index": index, "delta": delta}));
        }
        if matches!(part, Spoken::Thinking(_)) {
            let delta = json!({"type": "signature_delta", "signature": SIGNATURE});
            self.emit("content_block_delta", json!({"index": index, "delta": delta}));
        }
        self.emit("content_block_stop", json!({"index": index}));
    }

    fn blocks_so_far(&self) -> usize {
        let is_stop = |emission: &&Emission| matches!(emission, Emission::Bytes(bytes) if bytes.starts_with(b"event: content_block_stop\n"));
        self.0.iter().filter(is_stop).count()
    }
}

/// Stands where a vendor signs a thought; only the vendor could check it.
const SIGNATURE: &str = "c2NyaXB0ZWQ=";

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
