//! Decoder of chat completions responses, complete or streamed.

use bytes::BytesMut;

use super::wire::{ChatCompletion, ChatContent, ChatMessage, ChatUsage};
use crate::{
    translate::{
        block_sequencer::ToolCallDelta,
        response_writer::{ResponseDecoder, ResponseWriter, error_message},
        stream_encoder::{FinishReason, TokenCounts},
    },
    upstream::UpstreamFailure,
};

/// Reads one chat response.
#[derive(Default)]
pub(in crate::translate) struct ChatResponseDecoder {
    finish_reason: Option<String>,
    usage: Option<ChatUsage>,
}

impl ChatResponseDecoder {
    fn finish(&mut self, writer: &mut ResponseWriter, out: &mut BytesMut) {
        let tokens = self.usage.as_ref().map(|usage| TokenCounts {
            input: usage.prompt_tokens.saturating_sub(usage.cached_tokens()),
            cached: usage.cached_tokens(),
            output: usage.completion_tokens,
            reasoning: usage.reasoning_tokens(),
            ..TokenCounts::default()
        });
        let reason = match self.finish_reason.as_deref() {
            Some("length") => FinishReason::MaxTokens,
            Some("content_filter") => FinishReason::Refusal,
            Some("tool_calls" | "function_call") => FinishReason::ToolCalls,
            // Some servers send `stop` after tool calls; clients would not run the tools then.
            _ => FinishReason::EndTurn,
        };
        writer.finish(reason, tokens, out);
    }
}

fn push_message(message: ChatMessage, writer: &mut ResponseWriter) {
    if let Some(reasoning) = message.reasoning_text() {
        writer.push_thinking(reasoning);
    }
    let text = message.content.map(ChatContent::into_text).filter(|text| !text.is_empty()).or(message.refusal);
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        writer.push_text(&text);
    }
    for call in message.tool_calls.into_iter().flatten() {
        let (name, arguments) = call.function.map_or((None, None), |function| (function.name, function.arguments));
        let arguments = arguments.unwrap_or_default();
        writer.push_tool_call(&ToolCallDelta {
            call: call.index,
            id: call.id.as_deref(),
            name: name.as_deref(),
            arguments: &arguments,
        });
    }
}

impl ResponseDecoder for ChatResponseDecoder {
    fn read_event(
        &mut self,
        data: &[u8],
        writer: &mut ResponseWriter,
        out: &mut BytesMut,
    ) -> Result<(), UpstreamFailure> {
        if data == b"[DONE]" {
            self.finish(writer, out);
            return Ok(());
        }
        let chunk: ChatCompletion =
            serde_json::from_slice(data).map_err(|error| UpstreamFailure::InvalidResponse(error.to_string()))?;
        if let Some(error) = &chunk.error {
            writer.fail(&error_message(error), out);
            return Ok(());
        }
        writer.begin(chunk.id.as_deref(), chunk.model.as_deref(), out);
        self.usage = chunk.usage.or(self.usage.take());
        if let Some(mut choice) = chunk.choices.into_iter().next() {
            self.finish_reason = choice.finish_reason.take().or(self.finish_reason.take());
            if let Some(message) = choice.into_message() {
                push_message(message, writer);
            }
        }
        writer.flush(out)
    }

    fn read_document(
        &mut self,
        body: &[u8],
        writer: &mut ResponseWriter,
        out: &mut BytesMut,
    ) -> Result<(), UpstreamFailure> {
        self.read_event(body, writer, out)?;
        self.finish(writer, out);
        Ok(())
    }

    fn end(&mut self, writer: &mut ResponseWriter, out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        // Some servers omit `[DONE]`; a finish reason also marks the end.
        if self.finish_reason.is_none() {
            return Err(UpstreamFailure::Cut);
        }
        self.finish(writer, out);
        Ok(())
    }
}
