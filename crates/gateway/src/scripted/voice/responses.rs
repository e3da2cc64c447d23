//! The voice of `OpenAI` responses.

use protocol::Usage;
use serde_json::{Value, json};

use super::{Out, Voice, chat};
use crate::scripted::{
    document::{Failure, StopReason},
    reply::{Reply, Spoken},
};

/// Numbers the events and the items of a stream.
#[derive(Default)]
pub(super) struct Responses {
    events: u64,
    items: usize,
}

impl Voice for Responses {
    fn document(&self, reply: &Reply) -> Value {
        let parts = reply
            .parts
            .iter()
            .filter(|part| matches!(part, Spoken::Text(_) | Spoken::Thinking(_) | Spoken::Tool { .. }));
        let output: Vec<Value> = parts.enumerate().map(|(index, part)| item(part, index, reply)).collect();
        response(reply, status(reply), output, usage(&reply.usage))
    }

    fn error(&self, failure: &Failure) -> Value {
        chat::error(failure)
    }

    fn begin(&mut self, reply: &Reply, out: &mut Out) {
        for kind in ["response.created", "response.in_progress"] {
            let response = response(reply, "in_progress", Vec::new(), Value::Null);
            self.emit(out, kind, json!({"response": response}));
        }
    }

    fn block(&mut self, part: &Spoken, reply: &Reply, out: &mut Out) {
        let index = self.items;
        self.items += 1;
        let whole = item(part, index, reply);
        let place = json!({"item_id": whole["id"], "output_index": index});
        let mut opened = whole.clone();
        opened["status"] = "in_progress".into();
        let (field, empty) = match part {
            Spoken::Tool { .. } => ("arguments", json!("")),
            Spoken::Thinking(_) => ("summary", json!([])),
            _ => ("content", json!([])),
        };
        opened[field] = empty;
        self.emit(out, "response.output_item.added", json!({"output_index": index, "item": opened}));
        match part {
            Spoken::Tool { .. } => {
                let arguments = whole["arguments"].as_str().unwrap_or_default().to_owned();
                self.text(out, reply, "response.function_call_arguments", "arguments", &arguments, &place);
            }
            Spoken::Thinking(text) => {
                self.part(
                    out,
                    reply,
                    "reasoning_summary",
                    &whole["summary"][0],
                    text,
                    with(&place, "summary_index", 0),
                );
            }
            Spoken::Text(text) => {
                self.part(out, reply, "output", &whole["content"][0], text, with(&place, "content_index", 0));
            }
            _ => {}
        }
        self.emit(out, "response.output_item.done", json!({"output_index": index, "item": whole}));
    }

    fn fail(&mut self, failure: &Failure, out: &mut Out) {
        let message = failure.message.clone();
        self.emit(out, "error", json!({"code": failure.kind, "message": message, "param": null}));
    }

    fn end(&mut self, reply: &Reply, out: &mut Out) {
        let kind = if status(reply) == "completed" { "response.completed" } else { "response.incomplete" };
        self.emit(out, kind, json!({"response": self.document(reply)}));
    }
}

impl Responses {
    fn emit(&mut self, out: &mut Out, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        data["sequence_number"] = self.events.into();
        self.events += 1;
        out.named(kind, &data);
    }

    /// A part of an item, and its text.
    fn part(&mut self, out: &mut Out, reply: &Reply, kind: &str, part: &Value, text: &str, place: Value) {
        let part_kind = if kind == "output" { "response.content_part" } else { "response.reasoning_summary_part" };
        let mut empty = part.clone();
        empty["text"] = "".into();
        self.emit(out, &format!("{part_kind}.added"), with(&place, "part", empty));
        self.text(out, reply, &format!("response.{kind}_text"), "text", text, &place);
        self.emit(out, &format!("{part_kind}.done"), with(&place, "part", part.clone()));
    }

    /// A text that grows, and then stands.
    fn text(&mut self, out: &mut Out, reply: &Reply, kind: &str, field: &str, text: &str, place: &Value) {
        out.paced(text, reply, |out, piece| self.emit(out, &format!("{kind}.delta"), with(place, "delta", piece)));
        self.emit(out, &format!("{kind}.done"), with(place, field, text));
    }
}

fn with(place: &Value, field: &str, value: impl Into<Value>) -> Value {
    let mut data = place.clone();
    data[field] = value.into();
    data
}

fn item(part: &Spoken, index: usize, reply: &Reply) -> Value {
    let id = format!("{}_{index}", reply.id);
    match part {
        Spoken::Tool { id: call, name, input } => {
            let mut item = json!({
                "id": format!("fc_{id}"), "type": "function_call", "status": "completed",
                "call_id": format!("call_{call}"), "name": name, "arguments": Value::Object(input.clone()).to_string(),
            });
            // No vendor allows the sign in a name; this one has namespaces of tools.
            if let Some((namespace, name)) = name.split_once('/') {
                item["namespace"] = json!(namespace);
                item["name"] = json!(name);
            }
            item
        }
        Spoken::Thinking(text) => json!({
            "id": format!("rs_{id}"), "type": "reasoning", "status": "completed",
            "summary": [{"type": "summary_text", "text": text}],
        }),
        Spoken::Text(text) => json!({
            "id": format!("msg_{id}"), "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        _ => Value::Null,
    }
}

fn response(reply: &Reply, status: &str, output: Vec<Value>, usage: Value) -> Value {
    let incomplete = match status {
        "incomplete" if reply.stop_reason == StopReason::Refusal => json!({"reason": "content_filter"}),
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

fn status(reply: &Reply) -> &'static str {
    match reply.stop_reason {
        StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse => "completed",
        StopReason::MaxTokens | StopReason::Refusal => "incomplete",
    }
}

fn usage(usage: &Usage) -> Value {
    let input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens + usage.cache_write_1h_tokens;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + usage.output_tokens,
    })
}
