//! Encoder for responses in the `OpenAI` responses API.

use bytes::BytesMut;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::translate::{
    conversation::ToolAlias,
    stream_encoder::{BlockStart, FinishReason, StreamEncoder, TokenCounts, write_event},
};

/// Writes a response as an `OpenAI` response.
pub(in crate::translate) struct ResponsesStreamEncoder {
    /// Tools whose calls look different here than at the upstream.
    aliases: Vec<ToolAlias>,
    /// The response object so far.
    response: Value,
    output: Vec<Value>,
    open: Option<(BlockStart, String)>,
    events: u64,
}

impl ResponsesStreamEncoder {
    /// Creates an encoder for a request with these tools.
    pub(in crate::translate) fn new(aliases: Vec<ToolAlias>) -> Self {
        Self { aliases, response: Value::Null, output: Vec::new(), open: None, events: 0 }
    }

    fn write_numbered_event(&mut self, out: &mut BytesMut, kind: &str, mut data: Value) {
        data["sequence_number"] = self.events.into();
        self.events += 1;
        write_event(out, kind, data);
    }

    fn alias(&self, name: &str) -> Option<&ToolAlias> {
        self.aliases.iter().find(|alias| alias.upstream_name == name)
    }

    fn is_custom_tool(&self, start: &BlockStart) -> bool {
        matches!(start, BlockStart::Tool { name, .. } if self.alias(name).is_some_and(|alias| alias.custom))
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
                let summary = if status == "completed" && !text.is_empty() { vec![part] } else { Vec::new() };
                json!({"id": format!("rs_{id}"), "type": "reasoning", "status": status, "summary": summary})
            }
            BlockStart::Tool { id: call, name } => {
                let alias = self.alias(name);
                let (prefix, kind, field) = if alias.is_some_and(|alias| alias.custom) {
                    ("ctc", "custom_tool_call", "input")
                } else {
                    ("fc", "function_call", "arguments")
                };
                let name = alias.map_or(name, |alias| &alias.name);
                let mut item = json!({
                    "id": format!("{prefix}_{id}"), "type": kind, "status": status, "call_id": call, "name": name,
                });
                item[field] = text.into();
                if let Some(namespace) = alias.and_then(|alias| alias.namespace.as_deref()) {
                    item["namespace"] = namespace.into();
                }
                item
            }
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

    fn close_block(&mut self, index: usize, signature: Option<&str>, out: &mut BytesMut) {
        let Some((start, full_text)) = self.open.take() else { return };
        let full_text = if self.is_custom_tool(&start) { extract_free_text(&full_text) } else { full_text };
        let mut item = self.encode_item(index, &start, &full_text, "completed");
        if let Some(signature) = signature {
            item["encrypted_content"] = signature.into();
        }
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
                let part = json!({"type": "summary_text", "text": full_text});
                self.write_numbered_event(
                    out,
                    "response.reasoning_summary_text.done",
                    with_field(position.clone(), "text", full_text),
                );
                self.write_numbered_event(
                    out,
                    "response.reasoning_summary_part.done",
                    with_field(position, "part", part),
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

    fn take_document(&mut self) -> Value {
        self.response.take()
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
    let mut usage = json!({
        "input_tokens": tokens.prompt(), "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output, "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.prompt() + tokens.output,
    });
    tokens.add_cache_writes(&mut usage);
    usage
}
