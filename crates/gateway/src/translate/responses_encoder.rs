//! Encoder for responses in the `OpenAI` responses API.

use bytes::BytesMut;
use serde_json::{Value, json};
use uuid::Uuid;

use super::stream_encoder::{BlockStart, FinishReason, StreamEncoder, TokenCounts, write_event};

/// Writes a response as an `OpenAI` response.
pub(super) struct ResponsesStreamEncoder {
    /// Names of the tools that take free text; in chat all tools take JSON.
    custom_tools: Vec<String>,
    /// The response object so far.
    response: Value,
    output: Vec<Value>,
    open: Option<(BlockStart, String)>,
    events: u64,
}

impl ResponsesStreamEncoder {
    /// Creates an encoder for a request whose tools `custom_tools` take free text.
    pub(super) fn new(custom_tools: Vec<String>) -> Self {
        Self { custom_tools, response: Value::Null, output: Vec::new(), open: None, events: 0 }
    }

    /// Returns the complete response object.
    pub(super) fn into_document(self) -> Value {
        self.response
    }

    fn write_numbered_event(&mut self, out: &mut BytesMut, kind: &str, mut data: Value) {
        data["sequence_number"] = self.events.into();
        self.events += 1;
        write_event(out, kind, data);
    }

    fn is_custom_tool(&self, start: &BlockStart) -> bool {
        matches!(start, BlockStart::Tool { name, .. } if self.custom_tools.contains(name))
    }

    /// Returns the output item of a block with the content `text`.
    fn encode_item(&self, index: usize, start: &BlockStart, text: &str, status: &str) -> Value {
        let response = self.response["id"].as_str().unwrap_or_default().trim_start_matches("resp_");
        let id = format!("{response}_{index}");
        match start {
            BlockStart::Text => {
                let part = json!({"type": "output_text", "text": text, "annotations": []});
                let content = if status == "completed" { vec![part] } else { Vec::new() };
                json!({"id": format!("msg_{id}"), "type": "message", "role": "assistant", "status": status, "content": content})
            }
            BlockStart::Thinking => {
                let part = json!({"type": "summary_text", "text": text});
                let summary = if status == "completed" { vec![part] } else { Vec::new() };
                json!({"id": format!("rs_{id}"), "type": "reasoning", "status": status, "summary": summary})
            }
            BlockStart::Tool { id: call, name } if self.is_custom_tool(start) => json!({
                "id": format!("ctc_{id}"), "type": "custom_tool_call", "status": status, "call_id": call, "name": name,
                "input": text,
            }),
            BlockStart::Tool { id: call, name } => json!({
                "id": format!("fc_{id}"), "type": "function_call", "status": status, "call_id": call, "name": name,
                "arguments": text,
            }),
        }
    }
}

impl StreamEncoder for ResponsesStreamEncoder {
    fn begin(&mut self, id: Option<&str>, model: &str, _input_estimate: u64, out: &mut BytesMut) {
        let id = id.map_or_else(|| Uuid::now_v7().simple().to_string(), str::to_owned);
        self.response = json!({
            "id": format!("resp_{id}"), "object": "response", "created_at": 0, "status": "in_progress", "model": model,
            "output": [], "usage": null, "error": null, "incomplete_details": null, "instructions": null,
            "metadata": {}, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "temperature": 1.0,
            "top_p": 1.0,
        });
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response.clone();
            self.write_numbered_event(out, kind, json!({"response": response}));
        }
    }

    fn open_block(&mut self, index: usize, start: BlockStart, out: &mut BytesMut) {
        let item = self.encode_item(index, &start, "", "in_progress");
        let position = json!({"item_id": item["id"], "output_index": index});
        self.write_numbered_event(out, "response.output_item.added", json!({"output_index": index, "item": item}));
        match start {
            BlockStart::Text => {
                let part = json!({"type": "output_text", "text": "", "annotations": []});
                let data = with_field(with_field(position, "content_index", 0), "part", part);
                self.write_numbered_event(out, "response.content_part.added", data);
            }
            BlockStart::Thinking => {
                let part = json!({"type": "summary_text", "text": ""});
                let data = with_field(with_field(position, "summary_index", 0), "part", part);
                self.write_numbered_event(out, "response.reasoning_summary_part.added", data);
            }
            BlockStart::Tool { .. } => {}
        }
        self.open = Some((start, String::new()));
    }

    fn extend_block(&mut self, index: usize, text: &str, out: &mut BytesMut) {
        let Some((start, mut full_text)) = self.open.take() else { return };
        full_text.push_str(text);
        // The free text of a custom tool arrives inside JSON, so it can be written only when the JSON is complete.
        if !self.is_custom_tool(&start) {
            let id = self.encode_item(index, &start, "", "in_progress")["id"].clone();
            let position = json!({"item_id": id, "output_index": index, "delta": text});
            let (kind, data) = match start {
                BlockStart::Text => ("response.output_text.delta", with_field(position, "content_index", 0)),
                BlockStart::Thinking => {
                    ("response.reasoning_summary_text.delta", with_field(position, "summary_index", 0))
                }
                BlockStart::Tool { .. } => ("response.function_call_arguments.delta", position),
            };
            self.write_numbered_event(out, kind, data);
        }
        self.open = Some((start, full_text));
    }

    fn close_block(&mut self, index: usize, out: &mut BytesMut) {
        let Some((start, full_text)) = self.open.take() else { return };
        let full_text = if self.is_custom_tool(&start) { extract_free_text(&full_text) } else { full_text };
        let item = self.encode_item(index, &start, &full_text, "completed");
        let position = json!({"item_id": item["id"], "output_index": index});
        match &start {
            BlockStart::Text => {
                let position = with_field(position, "content_index", 0);
                self.write_numbered_event(
                    out,
                    "response.output_text.done",
                    with_field(position.clone(), "text", full_text),
                );
                self.write_numbered_event(
                    out,
                    "response.content_part.done",
                    with_field(position, "part", item["content"][0].clone()),
                );
            }
            BlockStart::Thinking => {
                let position = with_field(position, "summary_index", 0);
                self.write_numbered_event(
                    out,
                    "response.reasoning_summary_text.done",
                    with_field(position.clone(), "text", full_text),
                );
                self.write_numbered_event(
                    out,
                    "response.reasoning_summary_part.done",
                    with_field(position, "part", item["summary"][0].clone()),
                );
            }
            BlockStart::Tool { .. } if self.is_custom_tool(&start) => {
                self.write_numbered_event(
                    out,
                    "response.custom_tool_call_input.delta",
                    with_field(position.clone(), "delta", full_text.clone()),
                );
                self.write_numbered_event(
                    out,
                    "response.custom_tool_call_input.done",
                    with_field(position, "input", full_text),
                );
            }
            BlockStart::Tool { .. } => {
                self.write_numbered_event(
                    out,
                    "response.function_call_arguments.done",
                    with_field(position, "arguments", full_text),
                );
            }
        }
        self.write_numbered_event(out, "response.output_item.done", json!({"output_index": index, "item": item}));
        self.output.push(item);
    }

    fn end(&mut self, reason: FinishReason, tokens: TokenCounts, out: &mut BytesMut) {
        let (status, incomplete) = match reason {
            FinishReason::EndTurn | FinishReason::ToolCalls => ("completed", Value::Null),
            FinishReason::MaxTokens => ("incomplete", json!({"reason": "max_output_tokens"})),
            FinishReason::Refusal => ("incomplete", json!({"reason": "content_filter"})),
        };
        self.response["status"] = status.into();
        self.response["incomplete_details"] = incomplete;
        self.response["output"] = std::mem::take(&mut self.output).into();
        self.response["usage"] = encode_usage(tokens);
        let response = self.response.clone();
        self.write_numbered_event(out, &format!("response.{status}"), json!({"response": response}));
    }

    fn fail(&mut self, message: &str, out: &mut BytesMut) {
        self.response["status"] = "failed".into();
        self.response["error"] = json!({"code": "server_error", "message": message});
        let response = self.response.clone();
        self.write_numbered_event(out, "response.failed", json!({"response": response}));
    }
}

/// Returns the free text inside the JSON arguments; the arguments unchanged if they have another shape.
fn extract_free_text(arguments: &str) -> String {
    let object: Option<Value> = serde_json::from_str(arguments).ok();
    object.and_then(|object| object.get("input")?.as_str().map(str::to_owned)).unwrap_or_else(|| arguments.to_owned())
}

fn with_field(mut data: Value, field: &str, value: impl Into<Value>) -> Value {
    data[field] = value.into();
    data
}

fn encode_usage(tokens: TokenCounts) -> Value {
    let input = tokens.input + tokens.cached;
    json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + tokens.output,
    })
}
