//! Encoder for `OpenAI` chat completions.

use protocol::Usage;
use serde_json::{Value, json};

use super::{EventWriter, ResponseEncoder};
use crate::scripted::{
    reply::{ReplyPart, ScriptedReply},
    script::{ScriptedError, ScriptedStopReason},
};

/// Numbers the tool calls of a stream.
#[derive(Default)]
pub(super) struct ChatEncoder {
    calls: usize,
}

impl ResponseEncoder for ChatEncoder {
    fn encode_document(&self, reply: &ScriptedReply) -> Value {
        let of_kind =
            |kind: fn(&ReplyPart) -> Option<&str>| reply.parts.iter().filter_map(kind).collect::<Vec<_>>().concat();
        let text = of_kind(|part| if let ReplyPart::Text(text) = part { Some(text) } else { None });
        let thoughts = of_kind(|part| if let ReplyPart::Thinking(text) = part { Some(text) } else { None });
        let calls: Vec<Value> = reply.parts.iter().filter_map(encode_tool_call).collect();
        let mut message = json!({"role": "assistant", "content": (!text.is_empty()).then_some(text)});
        if !thoughts.is_empty() {
            message["reasoning_content"] = thoughts.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(reply)});
        let mut document = encode_head(reply, "chat.completion");
        document["choices"] = json!([choice]);
        document["usage"] = encode_usage(&reply.usage);
        document
    }

    fn encode_error(&self, failure: &ScriptedError) -> Value {
        encode_error_body(failure)
    }

    fn begin(&mut self, reply: &ScriptedReply, out: &mut EventWriter) {
        out.write_event(&encode_chunk(reply, json!({"role": "assistant", "content": ""}), None));
    }

    fn encode_block(&mut self, part: &ReplyPart, reply: &ScriptedReply, out: &mut EventWriter) {
        match part {
            ReplyPart::Text(text) => {
                out.write_paced(text, reply, |out, piece| {
                    out.write_event(&encode_chunk(reply, json!({"content": piece}), None));
                });
            }
            ReplyPart::Thinking(text) => {
                out.write_paced(text, reply, |out, piece| {
                    out.write_event(&encode_chunk(reply, json!({"reasoning_content": piece}), None));
                });
            }
            ReplyPart::Tool { id, name, input } => {
                let index = self.calls;
                self.calls += 1;
                let function = json!({"name": name, "arguments": ""});
                let call =
                    json!({"index": index, "id": format!("call_{id}"), "type": "function", "function": function});
                out.write_event(&encode_chunk(reply, json!({"tool_calls": [call]}), None));
                out.write_paced(&Value::Object(input.clone()).to_string(), reply, |out, piece| {
                    let call = json!({"index": index, "function": {"arguments": piece}});
                    out.write_event(&encode_chunk(reply, json!({"tool_calls": [call]}), None));
                });
            }
            _ => {}
        }
    }

    fn encode_failure(&mut self, failure: &ScriptedError, out: &mut EventWriter) {
        out.write_event(&encode_error_body(failure));
    }

    fn end(&mut self, reply: &ScriptedReply, out: &mut EventWriter) {
        out.write_event(&encode_chunk(reply, json!({}), Some(finish_reason(reply))));
        let mut last = encode_head(reply, "chat.completion.chunk");
        last["choices"] = json!([]);
        last["usage"] = encode_usage(&reply.usage);
        out.write_event(&last);
        out.write_done();
    }
}

/// Returns an error body in the shape of both `OpenAI` APIs.
pub(super) fn encode_error_body(failure: &ScriptedError) -> Value {
    let kind =
        failure.kind.as_deref().unwrap_or(if failure.status < 500 { "invalid_request_error" } else { "server_error" });
    json!({"error": {"message": failure.message, "type": kind, "param": null, "code": null}})
}

fn encode_head(reply: &ScriptedReply, object: &str) -> Value {
    json!({"id": format!("chatcmpl-{}", reply.id), "object": object, "created": 0, "model": reply.model})
}

fn encode_chunk(reply: &ScriptedReply, delta: Value, finish_reason: Option<&str>) -> Value {
    let mut chunk = encode_head(reply, "chat.completion.chunk");
    chunk["choices"] = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason}]);
    chunk
}

fn encode_tool_call(part: &ReplyPart) -> Option<Value> {
    let ReplyPart::Tool { id, name, input } = part else { return None };
    let function = json!({"name": name, "arguments": Value::Object(input.clone()).to_string()});
    Some(json!({"id": format!("call_{id}"), "type": "function", "function": function}))
}

fn encode_usage(usage: &Usage) -> Value {
    let prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens + usage.cache_write_1h_tokens;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    })
}

fn finish_reason(reply: &ScriptedReply) -> &'static str {
    match reply.stop_reason {
        ScriptedStopReason::EndTurn | ScriptedStopReason::StopSequence => "stop",
        ScriptedStopReason::ToolUse => "tool_calls",
        ScriptedStopReason::MaxTokens => "length",
        ScriptedStopReason::Refusal => "content_filter",
    }
}
