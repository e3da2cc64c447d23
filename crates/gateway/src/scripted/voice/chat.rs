//! The voice of `OpenAI` chat completions.

use protocol::Usage;
use serde_json::{Value, json};

use super::{Out, Voice};
use crate::scripted::{
    document::{Failure, StopReason},
    reply::{Reply, Spoken},
};

/// Counts the tool calls of a stream.
#[derive(Default)]
pub(super) struct Chat {
    calls: usize,
}

impl Voice for Chat {
    fn document(&self, reply: &Reply) -> Value {
        let of_kind =
            |kind: fn(&Spoken) -> Option<&str>| reply.parts.iter().filter_map(kind).collect::<Vec<_>>().concat();
        let text = of_kind(|part| if let Spoken::Text(text) = part { Some(text) } else { None });
        let thoughts = of_kind(|part| if let Spoken::Thinking(text) = part { Some(text) } else { None });
        let calls: Vec<Value> = reply.parts.iter().filter_map(call).collect();
        let mut message = json!({"role": "assistant", "content": (!text.is_empty()).then_some(text)});
        if !thoughts.is_empty() {
            message["reasoning_content"] = thoughts.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(reply)});
        let mut document = head(reply, "chat.completion");
        document["choices"] = json!([choice]);
        document["usage"] = usage(&reply.usage);
        document
    }

    fn error(&self, failure: &Failure) -> Value {
        error(failure)
    }

    fn begin(&mut self, reply: &Reply, out: &mut Out) {
        out.data(&chunk(reply, json!({"role": "assistant", "content": ""}), None));
    }

    fn block(&mut self, part: &Spoken, reply: &Reply, out: &mut Out) {
        match part {
            Spoken::Text(text) => {
                out.paced(text, reply, |out, piece| out.data(&chunk(reply, json!({"content": piece}), None)));
            }
            Spoken::Thinking(text) => {
                out.paced(text, reply, |out, piece| out.data(&chunk(reply, json!({"reasoning_content": piece}), None)));
            }
            Spoken::Tool { id, name, input } => {
                let index = self.calls;
                self.calls += 1;
                let function = json!({"name": name, "arguments": ""});
                let call =
                    json!({"index": index, "id": format!("call_{id}"), "type": "function", "function": function});
                out.data(&chunk(reply, json!({"tool_calls": [call]}), None));
                out.paced(&Value::Object(input.clone()).to_string(), reply, |out, piece| {
                    let call = json!({"index": index, "function": {"arguments": piece}});
                    out.data(&chunk(reply, json!({"tool_calls": [call]}), None));
                });
            }
            _ => {}
        }
    }

    fn fail(&mut self, failure: &Failure, out: &mut Out) {
        out.data(&error(failure));
    }

    fn end(&mut self, reply: &Reply, out: &mut Out) {
        out.data(&chunk(reply, json!({}), Some(finish_reason(reply))));
        let mut last = head(reply, "chat.completion.chunk");
        last["choices"] = json!([]);
        last["usage"] = usage(&reply.usage);
        out.data(&last);
        out.done();
    }
}

/// An error as both `OpenAI` APIs put it.
pub(super) fn error(failure: &Failure) -> Value {
    let kind =
        failure.kind.as_deref().unwrap_or(if failure.status < 500 { "invalid_request_error" } else { "server_error" });
    json!({"error": {"message": failure.message, "type": kind, "param": null, "code": null}})
}

fn head(reply: &Reply, object: &str) -> Value {
    json!({"id": format!("chatcmpl-{}", reply.id), "object": object, "created": 0, "model": reply.model})
}

fn chunk(reply: &Reply, delta: Value, finish_reason: Option<&str>) -> Value {
    let mut chunk = head(reply, "chat.completion.chunk");
    chunk["choices"] = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason}]);
    chunk
}

fn call(part: &Spoken) -> Option<Value> {
    let Spoken::Tool { id, name, input } = part else { return None };
    let function = json!({"name": name, "arguments": Value::Object(input.clone()).to_string()});
    Some(json!({"id": format!("call_{id}"), "type": "function", "function": function}))
}

fn usage(usage: &Usage) -> Value {
    let prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens + usage.cache_write_1h_tokens;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    })
}

fn finish_reason(reply: &Reply) -> &'static str {
    match reply.stop_reason {
        StopReason::EndTurn | StopReason::StopSequence => "stop",
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::Refusal => "content_filter",
    }
}
