//! Translator from chat completions responses, complete or streamed, to another API.

use bytes::BytesMut;

use super::{
    block_sequencer::{BlockSequencer, ToolCallDelta},
    chat::{self, ChatCompletion, ChatContent, ChatMessage},
    estimate_tokens,
    response_body::EventTranslator,
    stream_encoder::{FinishReason, StreamEncoder, TokenCounts},
};
use crate::upstream::UpstreamFailure;

/// Translates one chat response by driving an encoder of the client's API.
pub(super) struct ChatResponseTranslator<N> {
    encoder: N,
    input_estimate: u64,
    state: StreamState,
    blocks: BlockSequencer,
    finish_reason: Option<String>,
    usage: Option<chat::ChatUsage>,
    /// Bytes of model output, for an estimate if the server sends no usage.
    output_bytes: usize,
}

#[derive(PartialEq, Eq)]
enum StreamState {
    NotBegun,
    Begun,
    Ended,
}

impl<N: StreamEncoder> ChatResponseTranslator<N> {
    /// Creates a translator that writes to `encoder`; the prompt has about `input_estimate` tokens.
    pub(super) fn new(encoder: N, input_estimate: u64) -> Self {
        Self {
            encoder,
            input_estimate,
            state: StreamState::NotBegun,
            blocks: BlockSequencer::default(),
            finish_reason: None,
            usage: None,
            output_bytes: 0,
        }
    }

    /// Translates a complete response and returns the encoder, which holds the resulting document.
    pub(super) fn translate_document(mut self, body: &[u8]) -> Result<N, UpstreamFailure> {
        // The written events are discarded: the encoder also collects the document.
        let mut out = BytesMut::new();
        self.translate_event(body, &mut out)?;
        if self.state == StreamState::Begun {
            self.finish(&mut out);
        }
        Ok(self.encoder)
    }

    fn begin(&mut self, id: Option<&str>, model: Option<&str>, out: &mut BytesMut) {
        if self.state == StreamState::NotBegun {
            self.state = StreamState::Begun;
            self.encoder.begin(id.filter(|id| !id.is_empty()), model.unwrap_or_default(), self.input_estimate, out);
        }
    }

    fn push_message(&mut self, message: ChatMessage) {
        if let Some(reasoning) = message.reasoning_text() {
            self.output_bytes += reasoning.len();
            self.blocks.push_thinking(reasoning);
        }
        let text = message.content.map(ChatContent::into_text).filter(|text| !text.is_empty()).or(message.refusal);
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.output_bytes += text.len();
            self.blocks.push_text(&text);
        }
        for call in message.tool_calls.into_iter().flatten() {
            let (name, arguments) = call.function.map_or((None, None), |function| (function.name, function.arguments));
            let arguments = arguments.unwrap_or_default();
            self.output_bytes += arguments.len();
            let id = call.id.as_deref();
            self.blocks.push_tool_call(&ToolCallDelta {
                call: call.index,
                id,
                name: name.as_deref(),
                arguments: &arguments,
            });
        }
    }

    fn finish(&mut self, out: &mut BytesMut) {
        self.begin(None, None, out);
        self.state = StreamState::Ended;
        self.blocks.close_all(&mut self.encoder, out);
        let tokens = match &self.usage {
            Some(usage) => TokenCounts {
                input: usage.prompt_tokens.saturating_sub(usage.cached_tokens()),
                cached: usage.cached_tokens(),
                output: usage.completion_tokens,
            },
            None => TokenCounts { input: self.input_estimate, cached: 0, output: estimate_tokens(self.output_bytes) },
        };
        let reason = finish_reason(self.finish_reason.as_deref(), self.blocks.has_tool_call());
        self.encoder.end(reason, tokens, out);
    }
}

impl<N: StreamEncoder> EventTranslator for ChatResponseTranslator<N> {
    fn translate_event(&mut self, data: &[u8], out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        if self.state == StreamState::Ended {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.finish(out);
            return Ok(());
        }
        let chunk: ChatCompletion =
            serde_json::from_slice(data).map_err(|error| UpstreamFailure::InvalidResponse(error.to_string()))?;
        if let Some(error) = &chunk.error {
            self.state = StreamState::Ended;
            self.encoder.fail(&chat::error_message(error), out);
            return Ok(());
        }
        self.begin(chunk.id.as_deref(), chunk.model.as_deref(), out);
        self.usage = chunk.usage.or(self.usage.take());
        if let Some(mut choice) = chunk.choices.into_iter().next() {
            self.finish_reason = choice.finish_reason.take().or(self.finish_reason.take());
            if let Some(message) = choice.into_message() {
                self.push_message(message);
            }
        }
        self.blocks.flush(&mut self.encoder, out)
    }

    fn end(&mut self, out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        match self.state {
            StreamState::Ended => Ok(()),
            // Some servers omit `[DONE]`; a finish reason also marks the end.
            _ if self.finish_reason.is_some() => {
                self.finish(out);
                Ok(())
            }
            _ => Err(UpstreamFailure::Cut),
        }
    }
}

/// Returns the finish reason. Some servers send `stop` after tool calls; clients would not run the tools then.
fn finish_reason(finish_reason: Option<&str>, has_tool: bool) -> FinishReason {
    match finish_reason {
        Some("length") => FinishReason::MaxTokens,
        Some("content_filter") => FinishReason::Refusal,
        Some("tool_calls" | "function_call") => FinishReason::ToolCalls,
        _ if has_tool => FinishReason::ToolCalls,
        _ => FinishReason::EndTurn,
    }
}
