//! Decoder of Anthropic responses, complete or streamed.

use std::collections::BTreeMap;

use bytes::BytesMut;
use serde_json::Value;

use super::wire::{AnthropicBlock, AnthropicDelta, AnthropicEvent, AnthropicResponse, AnthropicUsage};
use crate::{
    translate::{
        block_sequencer::ToolCallDelta,
        conversation::Signature,
        response_writer::{ResponseDecoder, ResponseWriter},
        stream_encoder::{FinishReason, TokenCounts},
    },
    upstream::UpstreamFailure,
};

/// Reads one Anthropic response.
#[derive(Default)]
pub(in crate::translate) struct MessagesResponseDecoder {
    usage: AnthropicUsage,
    stop_reason: Option<String>,
    /// Signatures of the open blocks, which arrive in pieces.
    signatures: BTreeMap<u64, String>,
}

impl MessagesResponseDecoder {
    fn open_block(&mut self, index: u64, block: AnthropicBlock, writer: &mut ResponseWriter) {
        match block {
            AnthropicBlock::Text { text } => {
                writer.start_block(false);
                writer.push_text(&text);
            }
            AnthropicBlock::Thinking { thinking, signature } => {
                writer.start_block(true);
                writer.push_thinking(&thinking);
                self.signatures.insert(index, signature);
            }
            AnthropicBlock::RedactedThinking { data } => {
                writer.start_block(true);
                writer.push_signature(Signature::AnthropicRedacted.write(&data));
            }
            AnthropicBlock::ToolUse { id, name, input } => {
                // In a stream the input is empty here and follows in pieces.
                let arguments = if input.is_empty() { String::new() } else { Value::Object(input).to_string() };
                let (id, name) = (Some(id.as_str()), Some(name.as_str()));
                writer.push_tool_call(&ToolCallDelta { call: Some(index), id, name, arguments: &arguments });
            }
            AnthropicBlock::Other => {}
        }
    }

    fn extend_block(&mut self, index: u64, delta: AnthropicDelta, writer: &mut ResponseWriter) {
        match delta {
            AnthropicDelta::TextDelta { text } => writer.push_text(&text),
            AnthropicDelta::ThinkingDelta { thinking } => writer.push_thinking(&thinking),
            AnthropicDelta::SignatureDelta { signature } => {
                self.signatures.entry(index).or_default().push_str(&signature);
            }
            AnthropicDelta::InputJsonDelta { partial_json } => {
                let arguments = &partial_json;
                writer.push_tool_call(&ToolCallDelta { call: Some(index), id: None, name: None, arguments });
            }
            AnthropicDelta::Other => {}
        }
    }

    fn close_block(&mut self, index: u64, writer: &mut ResponseWriter) {
        if let Some(signature) = self.signatures.remove(&index).filter(|signature| !signature.is_empty()) {
            writer.push_signature(Signature::Anthropic.write(&signature));
        }
    }

    fn finish(&mut self, writer: &mut ResponseWriter, out: &mut BytesMut) {
        let reason = match self.stop_reason.as_deref() {
            Some("tool_use") => FinishReason::ToolCalls,
            Some("max_tokens" | "model_context_window_exceeded") => FinishReason::MaxTokens,
            Some("refusal") => FinishReason::Refusal,
            _ => FinishReason::EndTurn,
        };
        let usage = &self.usage;
        let is_counted = usage.input_tokens.is_some() || usage.output_tokens.is_some();
        let count = |tokens: Option<u64>| tokens.unwrap_or(0);
        let hour =
            usage.cache_creation.as_ref().and_then(|by_lifetime| by_lifetime["ephemeral_1h_input_tokens"].as_u64());
        let tokens = TokenCounts {
            input: count(usage.input_tokens),
            cached: count(usage.cache_read_input_tokens),
            cache_written: count(usage.cache_creation_input_tokens),
            cache_written_1h: count(hour),
            output: count(usage.output_tokens),
            reasoning: 0,
        };
        writer.finish(reason, is_counted.then_some(tokens), out);
    }
}

impl ResponseDecoder for MessagesResponseDecoder {
    fn read_event(
        &mut self,
        data: &[u8],
        writer: &mut ResponseWriter,
        out: &mut BytesMut,
    ) -> Result<(), UpstreamFailure> {
        match serde_json::from_slice(data).map_err(|error| UpstreamFailure::InvalidResponse(error.to_string()))? {
            AnthropicEvent::MessageStart { message } => {
                self.usage.overwrite(message.usage);
                writer.begin(Some(&message.id), Some(&message.model), out);
            }
            AnthropicEvent::ContentBlockStart { index, content_block } => self.open_block(index, content_block, writer),
            AnthropicEvent::ContentBlockDelta { index, delta } => self.extend_block(index, delta, writer),
            AnthropicEvent::ContentBlockStop { index } => self.close_block(index, writer),
            AnthropicEvent::MessageDelta { delta, usage } => {
                self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
                self.usage.overwrite(usage);
            }
            AnthropicEvent::MessageStop => self.finish(writer, out),
            AnthropicEvent::Error { error } => writer.fail(&error.message, out),
            AnthropicEvent::Other => {}
        }
        writer.flush(out)
    }

    fn read_document(
        &mut self,
        body: &[u8],
        writer: &mut ResponseWriter,
        out: &mut BytesMut,
    ) -> Result<(), UpstreamFailure> {
        let response: AnthropicResponse =
            serde_json::from_slice(body).map_err(|error| UpstreamFailure::InvalidResponse(error.to_string()))?;
        writer.begin(Some(&response.id), Some(&response.model), out);
        for (index, block) in (0..).zip(response.content) {
            self.open_block(index, block, writer);
            self.close_block(index, writer);
        }
        (self.stop_reason, self.usage) = (response.stop_reason, response.usage);
        self.finish(writer, out);
        Ok(())
    }

    fn end(&mut self, _writer: &mut ResponseWriter, _out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        Err(UpstreamFailure::Cut)
    }
}
