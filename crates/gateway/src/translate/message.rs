//! Tells an answer as an Anthropic message.

use bytes::BytesMut;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::narrator::{Narrator, Opening, Reason, Tokens, emit};
use crate::{endpoint::ApiDialect, refusal::error_body};

/// Stands where a vendor signs a thought: another vendor's thought has no signature.
const SIGNATURE: &str = "dHJhbnNsYXRlZA==";

/// A message that is being told.
#[derive(Default)]
pub(super) struct Message {
    /// What was told so far.
    told: Value,
    content: Vec<Value>,
    open: Option<(Opening, String)>,
}

impl Message {
    /// The whole message, or the error in its place.
    pub(super) fn into_document(mut self) -> Value {
        if self.told["type"] == "message" {
            self.told["content"] = self.content.into();
        }
        self.told
    }
}

impl Narrator for Message {
    fn begin(&mut self, id: Option<&str>, model: &str, input_estimate: u64, out: &mut BytesMut) {
        let id = id.map_or_else(|| Uuid::now_v7().simple().to_string(), str::to_owned);
        self.told = json!({
            "id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": usage(Tokens { input: input_estimate, cached: 0, output: 1 }),
        });
        emit(out, "message_start", json!({"message": self.told}));
    }

    fn open(&mut self, index: usize, opening: Opening, out: &mut BytesMut) {
        let start = match &opening {
            Opening::Text => json!({"type": "text", "text": ""}),
            Opening::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Opening::Tool { id, name } => json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
        };
        emit(out, "content_block_start", json!({"index": index, "content_block": start}));
        self.open = Some((opening, String::new()));
    }

    fn grow(&mut self, index: usize, text: &str, out: &mut BytesMut) {
        let Some((opening, whole)) = &mut self.open else { return };
        whole.push_str(text);
        let delta = match opening {
            Opening::Text => json!({"type": "text_delta", "text": text}),
            Opening::Thinking => json!({"type": "thinking_delta", "thinking": text}),
            Opening::Tool { .. } => json!({"type": "input_json_delta", "partial_json": text}),
        };
        emit(out, "content_block_delta", json!({"index": index, "delta": delta}));
    }

    fn close(&mut self, index: usize, out: &mut BytesMut) {
        let Some((opening, whole)) = self.open.take() else { return };
        self.content.push(match opening {
            Opening::Text => json!({"type": "text", "text": whole}),
            Opening::Thinking => {
                let delta = json!({"type": "signature_delta", "signature": SIGNATURE});
                emit(out, "content_block_delta", json!({"index": index, "delta": delta}));
                json!({"type": "thinking", "thinking": whole, "signature": SIGNATURE})
            }
            Opening::Tool { id, name } => {
                let input: Map<String, Value> = serde_json::from_str(&whole).unwrap_or_default();
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
        });
        emit(out, "content_block_stop", json!({"index": index}));
    }

    fn end(&mut self, reason: Reason, tokens: Tokens, out: &mut BytesMut) {
        let reason = match reason {
            Reason::Done => "end_turn",
            Reason::Tools => "tool_use",
            Reason::TooLong => "max_tokens",
            Reason::Refused => "refusal",
        };
        self.told["stop_reason"] = reason.into();
        self.told["usage"] = usage(tokens);
        let delta = json!({"stop_reason": reason, "stop_sequence": null});
        emit(out, "message_delta", json!({"delta": delta, "usage": usage(tokens)}));
        emit(out, "message_stop", json!({}));
    }

    fn fail(&mut self, message: &str, out: &mut BytesMut) {
        self.told = error_body(ApiDialect::Anthropic, http::StatusCode::BAD_GATEWAY, message);
        emit(out, "error", self.told.clone());
    }
}

fn usage(tokens: Tokens) -> Value {
    json!({
        "input_tokens": tokens.input, "output_tokens": tokens.output, "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": 0,
    })
}

#[cfg(test)]
mod tests;
