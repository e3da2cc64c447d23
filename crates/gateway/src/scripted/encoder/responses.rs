//! Encoder for `OpenAI` responses.

use protocol::Usage;
use serde_json::{Value, json};

use super::{EventWriter, ResponseEncoder, chat};
use crate::scripted::{
    reply::{ReplyPart, ScriptedReply},
    script::{ScriptedError, ScriptedStopReason},
};

/// Numbers the events and the items of a stream.
#[derive(Default)]
pub(super) struct ResponsesEncoder {
    events: u64,
    items: usize,
}

impl ResponseEncoder for ResponsesEncoder {
    fn encode_document(&self, reply: &ScriptedReply) -> Value {
        let parts = reply
            .parts
            .iter()
            .filter(|part| matches!(part, ReplyPart::Text(_) | ReplyPart::Thinking(_) | ReplyPart::Tool { .. }));
        let output: Vec<Value> = parts.enumerate().map(|(index, part)| encode_item(part, index, reply)).collect();
        encode_response(reply, status(reply), output, encode_usage(&reply.usage))
    }

    fn encode_error(&self, failure: &ScriptedError) -> Value {
        chat::encode_error_body(failure)
    }

    fn begin(&mut self, reply: &ScriptedReply, out: &mut EventWriter) {
        for kind in ["response.created", "response.in_progress"] {
            let response = encode_response(reply, "in_progress", Vec::new(), Value::Null);
            self.write_numbered_event(out, kind, json!({"response": response}));
        }
    }

    fn encode_block(&mut self, part: &ReplyPart, reply: &ScriptedReply, out: &mut EventWriter) {
        let index = self.items;
        self.items += 1;
        let completed = encode_item(part, index, reply);
        let position = json!({"item_id": completed["id"], "output_index": index});
        let mut opened = completed.clone();
        opened["status"] = "in_progress".into();
        let (field, empty) = match part {
            ReplyPart::Tool { .. } => ("arguments", json!("")),
            ReplyPart::Thinking(_) => ("summary", json!([])),
            _ => ("content", json!([])),
        };
        opened[field] = empty;
        self.write_numbered_event(out, "response.output_item.added", json!({"output_index": index, "item": opened}));
        match part {
            ReplyPart::Tool { .. } => {
                let arguments = completed["arguments"].as_str().unwrap_or_default().to_owned();
                self.write_text(out, reply, "response.function_call_arguments", "arguments", &arguments, &position);
            }
            ReplyPart::Thinking(text) => {
                self.write_part(
                    out,
                    reply,
                    "reasoning_summary",
                    &completed["summary"][0],
                    text,
                    with_field(&position, "summary_index", 0),
                );
            }
            ReplyPart::Text(text) => {
                self.write_part(
                    out,
                    reply,
                    "output",
                    &completed["content"][0],
                    text,
                    with_field(&position, "content_index", 0),
                );
            }
            _ => {}
        }
        self.write_numbered_event(out, "response.output_item.done", json!({"output_index": index, "item": completed}));
    }

    fn encode_failure(&mut self, failure: &ScriptedError, out: &mut EventWriter) {
        let message = failure.message.clone();
        self.write_numbered_event(out, "error", json!({"code": failure.kind, "message": message, "param": null}));
    }

    fn end(&mut self, reply: &ScriptedReply, out: &mut EventWriter) {
        let kind = if status(reply) == "completed" { "response.completed" } else { "response.incomplete" };
        self.write_numbered_event(out, kind, json!({"response": self.encode_document(reply)}));
    }
}

impl ResponsesEncoder {
    fn write_numbered_event(&mut self, out: &mut EventWriter, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        data["sequence_number"] = self.events.into();
        self.events += 1;
        out.write_named_event(kind, &data);
    }

    /// Writes the events of one content or summary part with its text.
    fn write_part(
        &mut self,
        out: &mut EventWriter,
        reply: &ScriptedReply,
        kind: &str,
        part: &Value,
        text: &str,
        position: Value,
    ) {
        let part_kind = if kind == "output" { "response.content_part" } else { "response.reasoning_summary_part" };
        let mut empty = part.clone();
        empty["text"] = "".into();
        self.write_numbered_event(out, &format!("{part_kind}.added"), with_field(&position, "part", empty));
        self.write_text(out, reply, &format!("response.{kind}_text"), "text", text, &position);
        self.write_numbered_event(out, &format!("{part_kind}.done"), with_field(&position, "part", part.clone()));
    }

    /// Writes the delta events of `text` and the event with the complete text.
    fn write_text(
        &mut self,
        out: &mut EventWriter,
        reply: &ScriptedReply,
        kind: &str,
        field: &str,
        text: &str,
        position: &Value,
    ) {
        out.write_paced(text, reply, |out, piece| {
            self.write_numbered_event(out, &format!("{kind}.delta"), with_field(position, "delta", piece));
        });
        self.write_numbered_event(out, &format!("{kind}.done"), with_field(position, field, text));
    }
}

fn with_field(position: &Value, field: &str, value: impl Into<Value>) -> Value {
    let mut data = position.clone();
    data[field] = value.into();
    data
}

fn encode_item(part: &ReplyPart, index: usize, reply: &ScriptedReply) -> Value {
    let id = format!("{}_{index}", reply.id);
    match part {
        ReplyPart::Tool { id: call, name, input } => {
            let mut item = json!({
                "id": format!("fc_{id}"), "type": "function_call", "status": "completed",
                "call_id": format!("call_{call}"), "name": name, "arguments": Value::Object(input.clone()).to_string(),
            });
            // `NAMESPACE/NAME` in a script: only this API has tool namespaces, and no vendor allows `/` in a tool name.
            if let Some((namespace, name)) = name.split_once('/') {
                item["namespace"] = json!(namespace);
                item["name"] = json!(name);
            }
            item
        }
        ReplyPart::Thinking(text) => json!({
            "id": format!("rs_{id}"), "type": "reasoning", "status": "completed",
            "summary": [{"type": "summary_text", "text": text}],
        }),
        ReplyPart::Text(text) => json!({
            "id": format!("msg_{id}"), "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        _ => Value::Null,
    }
}

fn encode_response(reply: &ScriptedReply, status: &str, output: Vec<Value>, usage: Value) -> Value {
    let incomplete = match status {
        "incomplete" if reply.stop_reason == ScriptedStopReason::Refusal => json!({"reason": "content_filter"}),
        "incomplete" => json!({"reason": "max_output_tokens"}),
        _ => Value::Null,
    };
    json!({
        "id": format!("resp_{}", reply.id), "object": "response", "created_at": 0, "status": status,
        "model": reply.model, "output": output, "usage": usage, "error": null, "incomplete_details": incomplete,
        "instructions": null, "metadata": {}, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "temperature": 1.0, "top_p": 1.0,
    })
}

fn status(reply: &ScriptedReply) -> &'static str {
    match reply.stop_reason {
        ScriptedStopReason::EndTurn | ScriptedStopReason::StopSequence | ScriptedStopReason::ToolUse => "completed",
        ScriptedStopReason::MaxTokens | ScriptedStopReason::Refusal => "incomplete",
    }
}

fn encode_usage(usage: &Usage) -> Value {
    let input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens + usage.cache_write_1h_tokens;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + usage.output_tokens,
    })
}
