//! Encoder for responses in the Anthropic Messages API.

use bytes::BytesMut;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    endpoint::ApiDialect,
    refusal::error_body,
    translate::stream_encoder::{BlockStart, FinishReason, StreamEncoder, TokenCounts, write_event},
};

/// Placeholder signature of thinking blocks: the upstream of another vendor sends none.
const SIGNATURE: &str = "dHJhbnNsYXRlZA==";

/// Writes a response as an Anthropic message.
#[derive(Default)]
pub(in crate::translate) struct MessagesStreamEncoder {
    /// The message so far, without its content; after `fail` the error.
    message: Value,
    content: Vec<Value>,
    open: Option<(BlockStart, String)>,
}

impl StreamEncoder for MessagesStreamEncoder {
    fn begin(&mut self, id: Option<&str>, model: &str, input_estimate: u64, out: &mut BytesMut) {
        let id = id.map_or_else(|| Uuid::now_v7().simple().to_string(), str::to_owned);
        self.message = json!({
            "id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": encode_usage(TokenCounts { input: input_estimate, output: 1, ..TokenCounts::default() }),
        });
        write_event(out, "message_start", json!({"message": self.message}));
    }

    fn open_block(&mut self, index: usize, start: BlockStart, out: &mut BytesMut) {
        let content_block = match &start {
            BlockStart::Text => json!({"type": "text", "text": ""}),
            BlockStart::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
            BlockStart::Tool { id, name } => json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
        };
        write_event(out, "content_block_start", json!({"index": index, "content_block": content_block}));
        self.open = Some((start, String::new()));
    }

    fn extend_block(&mut self, index: usize, text: &str, out: &mut BytesMut) {
        let Some((start, text_so_far)) = &mut self.open else { return };
        text_so_far.push_str(text);
        let delta = match start {
            BlockStart::Text => json!({"type": "text_delta", "text": text}),
            BlockStart::Thinking => json!({"type": "thinking_delta", "thinking": text}),
            BlockStart::Tool { .. } => json!({"type": "input_json_delta", "partial_json": text}),
        };
        write_event(out, "content_block_delta", json!({"index": index, "delta": delta}));
    }

    fn close_block(&mut self, index: usize, signature: Option<&str>, out: &mut BytesMut) {
        let Some((start, text_so_far)) = self.open.take() else { return };
        self.content.push(match start {
            BlockStart::Text => json!({"type": "text", "text": text_so_far}),
            BlockStart::Thinking => {
                let signature = signature.unwrap_or(SIGNATURE);
                let delta = json!({"type": "signature_delta", "signature": signature});
                write_event(out, "content_block_delta", json!({"index": index, "delta": delta}));
                json!({"type": "thinking", "thinking": text_so_far, "signature": signature})
            }
            BlockStart::Tool { id, name } => {
                let input: Map<String, Value> = serde_json::from_str(&text_so_far).unwrap_or_default();
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
        });
        write_event(out, "content_block_stop", json!({"index": index}));
    }

    fn end(&mut self, reason: FinishReason, tokens: TokenCounts, out: &mut BytesMut) {
        let reason = match reason {
            FinishReason::EndTurn => "end_turn",
            FinishReason::ToolCalls => "tool_use",
            FinishReason::MaxTokens => "max_tokens",
            FinishReason::Refusal => "refusal",
        };
        self.message["stop_reason"] = reason.into();
        self.message["usage"] = encode_usage(tokens);
        let delta = json!({"stop_reason": reason, "stop_sequence": null});
        write_event(out, "message_delta", json!({"delta": delta, "usage": encode_usage(tokens)}));
        write_event(out, "message_stop", json!({}));
    }

    fn fail(&mut self, message: &str, out: &mut BytesMut) {
        self.message = error_body(ApiDialect::Anthropic, http::StatusCode::BAD_GATEWAY, message);
        write_event(out, "error", self.message.clone());
    }

    fn take_document(&mut self) -> Value {
        let mut document = self.message.take();
        if document["type"] == "message" {
            document["content"] = std::mem::take(&mut self.content).into();
        }
        document
    }
}

fn encode_usage(tokens: TokenCounts) -> Value {
    let mut usage = json!({
        "input_tokens": tokens.input, "output_tokens": tokens.output, "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": 0,
    });
    tokens.add_cache_writes(&mut usage);
    usage
}

#[cfg(test)]
mod tests;
