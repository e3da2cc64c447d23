//! The answer of a chat server as an Anthropic message, whole or streamed.

use bytes::BytesMut;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    answer::EventTranslator,
    blocks::{Blocks, SIGNATURE, ToolPiece, emit},
    chat::{self, Answer, Content, Message},
    estimate_tokens,
};
use crate::{endpoint::Dialect, refusal::error_body, upstream::UpstreamFailure};

/// Puts a whole completion into an Anthropic message.
pub(super) fn document(body: &[u8], input_estimate: u64) -> Result<Value, serde_json::Error> {
    let answer: Answer = serde_json::from_slice(body)?;
    let usage =
        answer.usage.map_or_else(|| usage(input_estimate, 0, estimate_tokens(body.len())), |told| told_usage(&told));
    let (mut content, mut reason) = (Vec::new(), None);
    if let Some(mut choice) = answer.choices.into_iter().next() {
        reason = choice.finish_reason.take();
        content = choice.said().map(blocks).unwrap_or_default();
    }
    let has_tool = content.iter().any(|block| block["type"] == "tool_use");
    Ok(json!({
        "id": message_id(answer.id.as_deref()), "type": "message", "role": "assistant",
        "model": answer.model.unwrap_or_default(), "content": content,
        "stop_reason": stop_reason(reason.as_deref(), has_tool), "stop_sequence": null, "usage": usage,
    }))
}

fn blocks(message: Message) -> Vec<Value> {
    let thought = message.thoughts().map(|text| json!({"type": "thinking", "thinking": text, "signature": SIGNATURE}));
    let text = message.content.map(Content::into_text).filter(|text| !text.is_empty()).or(message.refusal);
    let text = text.map(|text| json!({"type": "text", "text": text}));
    let calls = message.tool_calls.into_iter().flatten().enumerate().map(|(index, call)| {
        let (name, arguments) = call.function.map_or((None, None), |called| (called.name, called.arguments));
        let input: Map<String, Value> =
            arguments.and_then(|arguments| serde_json::from_str(&arguments).ok()).unwrap_or_default();
        let id = call.id.unwrap_or_else(|| format!("call_{index}"));
        json!({"type": "tool_use", "id": id, "name": name.unwrap_or_default(), "input": input})
    });
    thought.into_iter().chain(text).chain(calls).collect()
}

/// Translates a stream of chunks.
pub(super) struct Stream {
    input_estimate: u64,
    state: State,
    blocks: Blocks,
    finish_reason: Option<String>,
    usage: Option<chat::Usage>,
    /// Bytes the model wrote, for an estimate where no usage is told.
    written: usize,
}

#[derive(PartialEq, Eq)]
enum State {
    NotBegun,
    Begun,
    Ended,
}

impl Stream {
    pub(super) fn new(input_estimate: u64) -> Self {
        Self {
            input_estimate,
            state: State::NotBegun,
            blocks: Blocks::default(),
            finish_reason: None,
            usage: None,
            written: 0,
        }
    }

    fn begin(&mut self, id: Option<&str>, model: Option<&str>, out: &mut BytesMut) {
        if self.state == State::NotBegun {
            self.state = State::Begun;
            let message = json!({
                "id": message_id(id), "type": "message", "role": "assistant", "model": model.unwrap_or_default(),
                "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage(self.input_estimate, 0, 1),
            });
            emit(out, "message_start", json!({"message": message}));
        }
    }

    fn hear(&mut self, message: Message) {
        if let Some(thought) = message.thoughts() {
            self.written += thought.len();
            self.blocks.thinking(thought);
        }
        let text = message.content.map(Content::into_text).or(message.refusal);
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.written += text.len();
            self.blocks.text(&text);
        }
        for call in message.tool_calls.into_iter().flatten() {
            let (name, arguments) = call.function.map_or((None, None), |called| (called.name, called.arguments));
            let arguments = arguments.unwrap_or_default();
            self.written += arguments.len();
            let id = call.id.as_deref();
            self.blocks.tool(&ToolPiece { call: call.index, id, name: name.as_deref(), arguments: &arguments });
        }
    }

    fn finish(&mut self, out: &mut BytesMut) {
        self.begin(None, None, out);
        self.state = State::Ended;
        self.blocks.close(out);
        let reason = stop_reason(self.finish_reason.as_deref(), self.blocks.has_tool());
        let usage = match &self.usage {
            Some(told) => told_usage(told),
            None => usage(self.input_estimate, 0, estimate_tokens(self.written)),
        };
        emit(out, "message_delta", json!({"delta": {"stop_reason": reason, "stop_sequence": null}, "usage": usage}));
        emit(out, "message_stop", json!({}));
    }
}

impl EventTranslator for Stream {
    fn event(&mut self, data: &[u8], out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        if self.state == State::Ended {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.finish(out);
            return Ok(());
        }
        let chunk: Answer =
            serde_json::from_slice(data).map_err(|error| UpstreamFailure::Garbage(error.to_string()))?;
        if let Some(error) = &chunk.error {
            self.state = State::Ended;
            let status = http::StatusCode::BAD_GATEWAY;
            emit(out, "error", error_body(Dialect::Anthropic, status, &chat::error_message(error)));
            return Ok(());
        }
        self.begin(chunk.id.as_deref(), chunk.model.as_deref(), out);
        self.usage = chunk.usage.or(self.usage.take());
        if let Some(mut choice) = chunk.choices.into_iter().next() {
            self.finish_reason = choice.finish_reason.take().or(self.finish_reason.take());
            if let Some(message) = choice.said() {
                self.hear(message);
            }
        }
        self.blocks.send(out)
    }

    fn end(&mut self, out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        match self.state {
            State::Ended => Ok(()),
            // Some servers forget the last word; a reason to stop is as good.
            _ if self.finish_reason.is_some() => {
                self.finish(out);
                Ok(())
            }
            _ => Err(UpstreamFailure::Cut),
        }
    }
}

fn message_id(id: Option<&str>) -> String {
    id.filter(|id| !id.is_empty()).map_or_else(|| format!("msg_{}", Uuid::now_v7().simple()), |id| format!("msg_{id}"))
}

/// Servers say `stop` after tool calls, too; a client would not run them then.
fn stop_reason(finish_reason: Option<&str>, has_tool: bool) -> &'static str {
    match finish_reason {
        Some("length") => "max_tokens",
        Some("content_filter") => "refusal",
        Some("tool_calls" | "function_call") => "tool_use",
        _ if has_tool => "tool_use",
        _ => "end_turn",
    }
}

fn told_usage(told: &chat::Usage) -> Value {
    usage(told.prompt_tokens.saturating_sub(told.cached()), told.cached(), told.completion_tokens)
}

fn usage(input: u64, cached: u64, output: u64) -> Value {
    json!({
        "input_tokens": input, "output_tokens": output, "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    })
}

#[cfg(test)]
mod tests;
