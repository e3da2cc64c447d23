//! Translator from Anthropic responses, complete or streamed, to chat completions.

use std::collections::BTreeMap;

use bytes::BytesMut;
use serde_json::{Value, json};

use super::{
    messages::{AnthropicBlock, AnthropicDelta, AnthropicEvent, AnthropicResponse, AnthropicUsage},
    response_body::EventTranslator,
};
use crate::{endpoint::ApiDialect, refusal::error_body, upstream::UpstreamFailure};

/// Translates a complete message into a chat completion.
pub(super) fn translate_document(body: &[u8]) -> Result<Value, serde_json::Error> {
    let response: AnthropicResponse = serde_json::from_slice(body)?;
    let (mut text, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
    for block in response.content {
        match block {
            AnthropicBlock::Text { text: more } => text.push_str(&more),
            AnthropicBlock::Thinking { thinking } => thoughts.push_str(&thinking),
            AnthropicBlock::ToolUse { id, name, input } => {
                let function = json!({"name": name, "arguments": Value::Object(input).to_string()});
                calls.push(json!({"id": id, "type": "function", "function": function}));
            }
            AnthropicBlock::Image { .. } | AnthropicBlock::ToolResult { .. } | AnthropicBlock::Other => {}
        }
    }
    let mut message = json!({"role": "assistant", "content": (!text.is_empty()).then_some(text), "refusal": null});
    if !thoughts.is_empty() {
        message["reasoning_content"] = thoughts.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let reason = finish_reason(response.stop_reason.as_deref());
    Ok(json!({
        "id": response.id, "object": "chat.completion", "created": 0, "model": response.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}],
        "usage": encode_usage(&response.usage),
    }))
}

/// Translates a stream of Anthropic events into chat completion chunks.
#[derive(Default)]
pub(super) struct MessagesStreamTranslator {
    id: String,
    model: String,
    usage: AnthropicUsage,
    stop_reason: Option<String>,
    /// Tool call numbers by block index: Anthropic numbers all blocks, chat only the tool calls.
    calls: BTreeMap<u64, usize>,
    ended: bool,
}

impl MessagesStreamTranslator {
    fn write_delta(&self, out: &mut BytesMut, delta: Value, finish_reason: Option<&str>) {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        self.write_chunk(out, json!([choice]), None);
    }

    fn write_chunk(&self, out: &mut BytesMut, choices: Value, usage: Option<Value>) {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": 0, "model": self.model, "choices": choices,
        });
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        write_data(out, &chunk);
    }

    fn open_block(&mut self, index: u64, block: AnthropicBlock, out: &mut BytesMut) {
        if let AnthropicBlock::ToolUse { id, name, .. } = block {
            let call = self.calls.len();
            self.calls.insert(index, call);
            let function = json!({"name": name, "arguments": ""});
            let call = json!({"index": call, "id": id, "type": "function", "function": function});
            self.write_delta(out, json!({"tool_calls": [call]}), None);
        }
    }

    fn extend_block(&self, index: u64, delta: AnthropicDelta, out: &mut BytesMut) {
        match delta {
            AnthropicDelta::TextDelta { text } => self.write_delta(out, json!({"content": text}), None),
            AnthropicDelta::ThinkingDelta { thinking } => {
                self.write_delta(out, json!({"reasoning_content": thinking}), None);
            }
            AnthropicDelta::InputJsonDelta { partial_json } => {
                if let Some(call) = self.calls.get(&index) {
                    let call = json!({"index": call, "function": {"arguments": partial_json}});
                    self.write_delta(out, json!({"tool_calls": [call]}), None);
                }
            }
            AnthropicDelta::Other => {}
        }
    }

    fn finish(&mut self, out: &mut BytesMut) {
        self.ended = true;
        self.write_delta(out, json!({}), Some(finish_reason(self.stop_reason.as_deref())));
        self.write_chunk(out, json!([]), Some(encode_usage(&self.usage)));
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}

impl EventTranslator for MessagesStreamTranslator {
    fn translate_event(&mut self, data: &[u8], out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        if self.ended {
            return Ok(());
        }
        match serde_json::from_slice(data).map_err(|error| UpstreamFailure::InvalidResponse(error.to_string()))? {
            AnthropicEvent::MessageStart { message } => {
                (self.id, self.model) = (message.id, message.model);
                self.usage.overwrite(message.usage);
                self.write_delta(out, json!({"role": "assistant", "content": ""}), None);
            }
            AnthropicEvent::ContentBlockStart { index, content_block } => self.open_block(index, content_block, out),
            AnthropicEvent::ContentBlockDelta { index, delta } => self.extend_block(index, delta, out),
            AnthropicEvent::MessageDelta { delta, usage } => {
                self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
                self.usage.overwrite(usage);
            }
            AnthropicEvent::MessageStop => self.finish(out),
            AnthropicEvent::Error { error } => {
                self.ended = true;
                write_data(out, &error_body(ApiDialect::Openai, http::StatusCode::BAD_GATEWAY, &error.message));
            }
            AnthropicEvent::Other => {}
        }
        Ok(())
    }

    fn end(&mut self, _out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        if self.ended { Ok(()) } else { Err(UpstreamFailure::Cut) }
    }
}

fn write_data(out: &mut BytesMut, data: &Value) {
    out.extend_from_slice(format!("data: {data}\n\n").as_bytes());
}

fn finish_reason(stop_reason: Option<&str>) -> &'static str {
    match stop_reason {
        Some("tool_use") => "tool_calls",
        Some("max_tokens" | "model_context_window_exceeded") => "length",
        Some("refusal") => "content_filter",
        _ => "stop",
    }
}

/// Returns usage in the shape of chat, where `prompt_tokens` includes cache reads and writes.
fn encode_usage(counts: &AnthropicUsage) -> Value {
    let count = |tokens: Option<u64>| tokens.unwrap_or(0);
    let (read, written) = (count(counts.cache_read_input_tokens), count(counts.cache_creation_input_tokens));
    let prompt = count(counts.input_tokens) + read + written;
    let output = count(counts.output_tokens);
    let mut usage = json!({
        "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": read}, "cache_creation_input_tokens": written,
    });
    if let Some(by_lifetime) = &counts.cache_creation {
        usage["cache_creation"] = by_lifetime.clone();
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(events: &[&str]) -> Vec<Value> {
        let (mut stream, mut out) = (MessagesStreamTranslator::default(), BytesMut::new());
        for event in events {
            stream.translate_event(event.as_bytes(), &mut out).unwrap();
        }
        stream.end(&mut out).unwrap();
        let text = String::from_utf8(out.to_vec()).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        lines.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    #[test]
    fn blocks_become_deltas_and_tool_calls_are_numbered_from_zero() {
        let chunks = translate(&[
            r#"{"type":"message_start","message":{"id":"m1","model":"c","usage":{"input_tokens":3,"cache_read_input_tokens":2,"cache_creation_input_tokens":4}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"run","input":{}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}"#,
            r#"{"type":"message_stop"}"#,
        ]);
        let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
        assert_eq!(deltas[1], &json!({"content": "hi"}));
        assert_eq!(
            deltas[2]["tool_calls"][0],
            json!({"index": 0, "id": "t1", "type": "function", "function": {"name": "run", "arguments": ""}})
        );
        assert_eq!(deltas[3]["tool_calls"][0], json!({"index": 0, "function": {"arguments": "{}"}}));
        assert_eq!(chunks[4]["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(
            chunks[5]["usage"],
            json!({"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18, "prompt_tokens_details": {"cached_tokens": 2}, "cache_creation_input_tokens": 4})
        );
    }

    #[test]
    fn incomplete_stream_is_an_error() {
        let mut stream = MessagesStreamTranslator::default();
        let mut out = BytesMut::new();
        stream.translate_event(br#"{"type":"message_start","message":{"id":"m1","model":"c"}}"#, &mut out).unwrap();
        assert!(matches!(stream.end(&mut out), Err(UpstreamFailure::Cut)));
    }

    #[test]
    fn complete_message_becomes_a_completion() {
        let message = json!({"id": "m1", "type": "message", "role": "assistant", "model": "c", "stop_reason": "max_tokens",
            "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "hi"}, {"type": "tool_use", "id": "t", "name": "run", "input": {"a": 1}}],
            "usage": {"input_tokens": 3, "output_tokens": 5}});
        let completion = translate_document(message.to_string().as_bytes()).unwrap();
        let choice = &completion["choices"][0];
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("hi"), &json!("length")));
        assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");
        assert_eq!(choice["message"]["reasoning_content"], "hm");
    }
}
