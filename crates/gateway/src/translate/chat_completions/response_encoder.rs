//! Encoder for chat completions.

use bytes::BytesMut;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    endpoint::ApiDialect,
    refusal::error_body,
    translate::stream_encoder::{BlockStart, FinishReason, StreamEncoder, TokenCounts},
};

/// Writes a response as a chat completion.
#[derive(Default)]
pub(in crate::translate) struct ChatStreamEncoder {
    id: String,
    model: String,
    text: String,
    thoughts: String,
    calls: Vec<Value>,
    open: Option<BlockStart>,
    /// The signature of reasoning without text, which belongs to the next call.
    signature: Option<String>,
    /// The document after the end.
    document: Value,
}

impl ChatStreamEncoder {
    fn write_delta(&self, out: &mut BytesMut, delta: &Value, finish_reason: Option<&str>) {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        self.write_chunk(out, &json!([choice]), None);
    }

    fn write_chunk(&self, out: &mut BytesMut, choices: &Value, usage: Option<Value>) {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": 0, "model": self.model, "choices": choices,
        });
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        write_data(out, &chunk);
    }

    fn last_call(&mut self) -> Option<(usize, &mut Value)> {
        let index = self.calls.len().checked_sub(1)?;
        Some((index, &mut self.calls[index]))
    }
}

impl StreamEncoder for ChatStreamEncoder {
    fn begin(&mut self, id: Option<&str>, model: &str, _input_estimate: u64, out: &mut BytesMut) {
        self.id = id.map_or_else(|| format!("chatcmpl-{}", Uuid::now_v7().simple()), str::to_owned);
        model.clone_into(&mut self.model);
        self.write_delta(out, &json!({"role": "assistant", "content": ""}), None);
    }

    fn open_block(&mut self, _index: usize, start: BlockStart, out: &mut BytesMut) {
        if let BlockStart::Tool { id, name } = &start {
            let function = json!({"name": name, "arguments": ""});
            let mut call = json!({"id": id, "type": "function", "function": function});
            if let Some(signature) = self.signature.take() {
                call["extra_content"] = json!({"google": {"thought_signature": signature}});
            }
            self.calls.push(call.clone());
            call["index"] = (self.calls.len() - 1).into();
            self.write_delta(out, &json!({"tool_calls": [call]}), None);
        }
        self.open = Some(start);
    }

    fn extend_block(&mut self, _index: usize, text: &str, out: &mut BytesMut) {
        match self.open {
            Some(BlockStart::Text) => {
                self.text.push_str(text);
                self.write_delta(out, &json!({"content": text}), None);
            }
            Some(BlockStart::Thinking) => {
                self.thoughts.push_str(text);
                self.write_delta(out, &json!({"reasoning_content": text}), None);
            }
            Some(BlockStart::Tool { .. }) => {
                let Some((index, call)) = self.last_call() else { return };
                let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                call["function"]["arguments"] = format!("{arguments}{text}").into();
                let call = json!({"index": index, "function": {"arguments": text}});
                self.write_delta(out, &json!({"tool_calls": [call]}), None);
            }
            None => {}
        }
    }

    fn close_block(&mut self, _index: usize, signature: Option<&str>, out: &mut BytesMut) {
        self.signature =
            signature.filter(|_| signature_is_of_calls(signature)).map(str::to_owned).or(self.signature.take());
        // A call without arguments still needs an object.
        if matches!(self.open.take(), Some(BlockStart::Tool { .. }))
            && let Some((index, call)) = self.last_call()
            && call["function"]["arguments"] == ""
        {
            call["function"]["arguments"] = "{}".into();
            let call = json!({"index": index, "function": {"arguments": "{}"}});
            self.write_delta(out, &json!({"tool_calls": [call]}), None);
        }
    }

    fn end(&mut self, reason: FinishReason, tokens: TokenCounts, out: &mut BytesMut) {
        let reason = match reason {
            FinishReason::EndTurn => "stop",
            FinishReason::ToolCalls => "tool_calls",
            FinishReason::MaxTokens => "length",
            FinishReason::Refusal => "content_filter",
        };
        self.write_delta(out, &json!({}), Some(reason));
        self.write_chunk(out, &json!([]), Some(encode_usage(tokens)));
        out.extend_from_slice(b"data: [DONE]\n\n");
        let content = Some(&self.text).filter(|text| !text.is_empty());
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !self.thoughts.is_empty() {
            message["reasoning_content"] = self.thoughts.clone().into();
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = std::mem::take(&mut self.calls).into();
        }
        self.document = json!({
            "id": self.id, "object": "chat.completion", "created": 0, "model": self.model,
            "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}],
            "usage": encode_usage(tokens),
        });
    }

    fn fail(&mut self, message: &str, out: &mut BytesMut) {
        self.document = error_body(ApiDialect::Openai, http::StatusCode::BAD_GATEWAY, message);
        write_data(out, &self.document);
    }

    fn take_document(&mut self) -> Value {
        self.document.take()
    }
}

/// Returns whether clients of this API can return a signature: they have a field for it only in calls.
fn signature_is_of_calls(signature: Option<&str>) -> bool {
    signature.is_some_and(|signature| signature.starts_with("gemini."))
}

fn write_data(out: &mut BytesMut, data: &Value) {
    out.extend_from_slice(format!("data: {data}\n\n").as_bytes());
}

/// Returns usage in the shape of chat, where `prompt_tokens` includes cache reads and writes.
fn encode_usage(tokens: TokenCounts) -> Value {
    let mut usage = json!({
        "prompt_tokens": tokens.prompt(), "completion_tokens": tokens.output,
        "total_tokens": tokens.prompt() + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    });
    tokens.add_cache_writes(&mut usage);
    usage
}
