//! Tells an answer as an `OpenAI` response.

use bytes::BytesMut;
use serde_json::{Value, json};
use uuid::Uuid;

use super::narrator::{Narrator, Opening, Reason, Tokens, emit};

/// A response that is being told.
pub(super) struct Response {
    /// Tools that take free text: chat knows only tools that take JSON.
    custom_tools: Vec<String>,
    /// What was told so far.
    told: Value,
    output: Vec<Value>,
    open: Option<(Opening, String)>,
    events: u64,
}

impl Response {
    /// A response to a request whose tools `custom_tools` take free text.
    pub(super) fn new(custom_tools: Vec<String>) -> Self {
        Self { custom_tools, told: Value::Null, output: Vec::new(), open: None, events: 0 }
    }

    /// The whole response.
    pub(super) fn into_document(self) -> Value {
        self.told
    }

    fn emit(&mut self, out: &mut BytesMut, kind: &str, mut data: Value) {
        data["sequence_number"] = self.events.into();
        self.events += 1;
        emit(out, kind, data);
    }

    fn is_custom(&self, opening: &Opening) -> bool {
        matches!(opening, Opening::Tool { name, .. } if self.custom_tools.contains(name))
    }

    /// The item a block is; `text` is what it holds.
    fn item(&self, index: usize, opening: &Opening, text: &str, status: &str) -> Value {
        let response = self.told["id"].as_str().unwrap_or_default().trim_start_matches("resp_");
        let id = format!("{response}_{index}");
        match opening {
            Opening::Text => {
                let part = json!({"type": "output_text", "text": text, "annotations": []});
                let content = if status == "completed" { vec![part] } else { Vec::new() };
                json!({"id": format!("msg_{id}"), "type": "message", "role": "assistant", "status": status, "content": content})
            }
            Opening::Thinking => {
                let part = json!({"type": "summary_text", "text": text});
                let summary = if status == "completed" { vec![part] } else { Vec::new() };
                json!({"id": format!("rs_{id}"), "type": "reasoning", "status": status, "summary": summary})
            }
            Opening::Tool { id: call, name } if self.is_custom(opening) => json!({
                "id": format!("ctc_{id}"), "type": "custom_tool_call", "status": status, "call_id": call, "name": name,
                "input": text,
            }),
            Opening::Tool { id: call, name } => json!({
                "id": format!("fc_{id}"), "type": "function_call", "status": status, "call_id": call, "name": name,
                "arguments": text,
            }),
        }
    }
}

impl Narrator for Response {
    fn begin(&mut self, id: Option<&str>, model: &str, _input_estimate: u64, out: &mut BytesMut) {
        let id = id.map_or_else(|| Uuid::now_v7().simple().to_string(), str::to_owned);
        self.told = json!({
            "id": format!("resp_{id}"), "object": "response", "created_at": 0, "status": "in_progress", "model": model,
            "output": [], "usage": null, "error": null, "incomplete_details": null, "instructions": null,
            "metadata": {}, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "temperature": 1.0,
            "top_p": 1.0,
        });
        for kind in ["response.created", "response.in_progress"] {
            let response = self.told.clone();
            self.emit(out, kind, json!({"response": response}));
        }
    }

    fn open(&mut self, index: usize, opening: Opening, out: &mut BytesMut) {
        let item = self.item(index, &opening, "", "in_progress");
        let place = json!({"item_id": item["id"], "output_index": index});
        self.emit(out, "response.output_item.added", json!({"output_index": index, "item": item}));
        match opening {
            Opening::Text => {
                let part = json!({"type": "output_text", "text": "", "annotations": []});
                let data = with(with(place, "content_index", 0), "part", part);
                self.emit(out, "response.content_part.added", data);
            }
            Opening::Thinking => {
                let part = json!({"type": "summary_text", "text": ""});
                let data = with(with(place, "summary_index", 0), "part", part);
                self.emit(out, "response.reasoning_summary_part.added", data);
            }
            Opening::Tool { .. } => {}
        }
        self.open = Some((opening, String::new()));
    }

    fn grow(&mut self, index: usize, text: &str, out: &mut BytesMut) {
        let Some((opening, mut whole)) = self.open.take() else { return };
        whole.push_str(text);
        // The free text of a custom tool is inside JSON here, and can be told only when that is whole.
        if !self.is_custom(&opening) {
            let id = self.item(index, &opening, "", "in_progress")["id"].clone();
            let place = json!({"item_id": id, "output_index": index, "delta": text});
            let (kind, data) = match opening {
                Opening::Text => ("response.output_text.delta", with(place, "content_index", 0)),
                Opening::Thinking => ("response.reasoning_summary_text.delta", with(place, "summary_index", 0)),
                Opening::Tool { .. } => ("response.function_call_arguments.delta", place),
            };
            self.emit(out, kind, data);
        }
        self.open = Some((opening, whole));
    }

    fn close(&mut self, index: usize, out: &mut BytesMut) {
        let Some((opening, whole)) = self.open.take() else { return };
        let whole = if self.is_custom(&opening) { free_text(&whole) } else { whole };
        let item = self.item(index, &opening, &whole, "completed");
        let place = json!({"item_id": item["id"], "output_index": index});
        match &opening {
            Opening::Text => {
                let place = with(place, "content_index", 0);
                self.emit(out, "response.output_text.done", with(place.clone(), "text", whole));
                self.emit(out, "response.content_part.done", with(place, "part", item["content"][0].clone()));
            }
            Opening::Thinking => {
                let place = with(place, "summary_index", 0);
                self.emit(out, "response.reasoning_summary_text.done", with(place.clone(), "text", whole));
                self.emit(out, "response.reasoning_summary_part.done", with(place, "part", item["summary"][0].clone()));
            }
            Opening::Tool { .. } if self.is_custom(&opening) => {
                self.emit(out, "response.custom_tool_call_input.delta", with(place.clone(), "delta", whole.clone()));
                self.emit(out, "response.custom_tool_call_input.done", with(place, "input", whole));
            }
            Opening::Tool { .. } => {
                self.emit(out, "response.function_call_arguments.done", with(place, "arguments", whole));
            }
        }
        self.emit(out, "response.output_item.done", json!({"output_index": index, "item": item}));
        self.output.push(item);
    }

    fn end(&mut self, reason: Reason, tokens: Tokens, out: &mut BytesMut) {
        let (status, incomplete) = match reason {
            Reason::Done | Reason::Tools => ("completed", Value::Null),
            Reason::TooLong => ("incomplete", json!({"reason": "max_output_tokens"})),
            Reason::Refused => ("incomplete", json!({"reason": "content_filter"})),
        };
        self.told["status"] = status.into();
        self.told["incomplete_details"] = incomplete;
        self.told["output"] = std::mem::take(&mut self.output).into();
        self.told["usage"] = usage(tokens);
        let response = self.told.clone();
        self.emit(out, &format!("response.{status}"), json!({"response": response}));
    }

    fn fail(&mut self, message: &str, out: &mut BytesMut) {
        self.told["status"] = "failed".into();
        self.told["error"] = json!({"code": "server_error", "message": message});
        let response = self.told.clone();
        self.emit(out, "response.failed", json!({"response": response}));
    }
}

/// The text inside the arguments that stand for it; as they are, where they are something else.
fn free_text(arguments: &str) -> String {
    let told: Option<Value> = serde_json::from_str(arguments).ok();
    told.and_then(|told| told.get("input")?.as_str().map(str::to_owned)).unwrap_or_else(|| arguments.to_owned())
}

fn with(mut data: Value, field: &str, value: impl Into<Value>) -> Value {
    data[field] = value.into();
    data
}

fn usage(tokens: Tokens) -> Value {
    let input = tokens.input + tokens.cached;
    json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + tokens.output,
    })
}
