//! The way of a response from a decoder of the upstream's API to an encoder of the client's API.
//!
//! A decoder pushes texts, reasoning and tool calls into a [`ResponseWriter`], which writes them in order.

use bytes::BytesMut;
use serde_json::Value;

use super::{
    block_sequencer::{BlockSequencer, ToolCallDelta},
    estimate_tokens,
    stream_encoder::{FinishReason, StreamEncoder, TokenCounts},
};
use crate::upstream::UpstreamFailure;

/// Reads a response of one API.
pub(super) trait ResponseDecoder: Send {
    /// Reads the data of one event of a stream.
    fn read_event(
        &mut self,
        data: &[u8],
        writer: &mut ResponseWriter,
        out: &mut BytesMut,
    ) -> Result<(), UpstreamFailure>;
    /// Reads a complete response.
    fn read_document(
        &mut self,
        body: &[u8],
        writer: &mut ResponseWriter,
        out: &mut BytesMut,
    ) -> Result<(), UpstreamFailure>;
    /// Handles the end of a stream without its last event; fails if the response is incomplete.
    fn end(&mut self, writer: &mut ResponseWriter, out: &mut BytesMut) -> Result<(), UpstreamFailure>;
}

/// Translates one response.
pub(super) struct ResponseTranslator {
    decoder: Box<dyn ResponseDecoder>,
    writer: ResponseWriter,
}

impl ResponseTranslator {
    /// Creates a translator from one API to another; the prompt has about `input_estimate` tokens.
    pub(super) fn new(decoder: Box<dyn ResponseDecoder>, encoder: Box<dyn StreamEncoder>, input_estimate: u64) -> Self {
        let blocks = BlockSequencer::default();
        let writer = ResponseWriter { encoder, input_estimate, state: StreamState::NotBegun, blocks, output_bytes: 0 };
        Self { decoder, writer }
    }

    /// Translates the data of one event and appends the resulting events to `out`.
    pub(super) fn translate_event(&mut self, data: &[u8], out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        if self.writer.state == StreamState::Ended {
            return Ok(());
        }
        self.decoder.read_event(data, &mut self.writer, out)
    }

    /// Handles the end of the upstream's stream; fails if the response is incomplete.
    pub(super) fn end(&mut self, out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        if self.writer.state == StreamState::Ended {
            return Ok(());
        }
        self.decoder.end(&mut self.writer, out)
    }

    /// Translates a complete response.
    pub(super) fn translate_document(mut self, body: &[u8]) -> Result<Value, UpstreamFailure> {
        // The written events are discarded: the encoder also collects the document.
        let mut out = BytesMut::new();
        self.decoder.read_document(body, &mut self.writer, &mut out)?;
        Ok(self.writer.encoder.take_document())
    }
}

/// Writes one response with an encoder of the client's API.
pub(super) struct ResponseWriter {
    encoder: Box<dyn StreamEncoder>,
    input_estimate: u64,
    state: StreamState,
    blocks: BlockSequencer,
    /// Bytes of model output, for an estimate if the server sends no usage.
    output_bytes: usize,
}

#[derive(PartialEq, Eq)]
enum StreamState {
    NotBegun,
    Begun,
    Ended,
}

impl ResponseWriter {
    /// Starts the response; later calls do nothing.
    pub(super) fn begin(&mut self, id: Option<&str>, model: Option<&str>, out: &mut BytesMut) {
        if self.state == StreamState::NotBegun {
            self.state = StreamState::Begun;
            self.encoder.begin(id.filter(|id| !id.is_empty()), model.unwrap_or_default(), self.input_estimate, out);
        }
    }

    pub(super) fn push_text(&mut self, text: &str) {
        self.output_bytes += text.len();
        self.blocks.push_text(text);
    }

    pub(super) fn push_thinking(&mut self, text: &str) {
        self.output_bytes += text.len();
        self.blocks.push_thinking(text);
    }

    pub(super) fn push_signature(&mut self, signature: String) {
        self.blocks.push_signature(signature);
    }

    pub(super) fn push_tool_call(&mut self, piece: &ToolCallDelta<'_>) {
        self.output_bytes += piece.arguments.len();
        self.blocks.push_tool_call(piece);
    }

    /// Starts a text or reasoning that is separate from the one before.
    pub(super) fn start_block(&mut self, is_thinking: bool) {
        self.blocks.start_block(is_thinking);
    }

    /// Writes everything that can be written now; fails if too much stays buffered.
    pub(super) fn flush(&mut self, out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        match self.state {
            StreamState::Begun => self.blocks.flush(&mut *self.encoder, out),
            StreamState::NotBegun | StreamState::Ended => Ok(()),
        }
    }

    /// Ends the response. Without counts of the upstream, tokens are estimated.
    pub(super) fn finish(&mut self, reason: FinishReason, tokens: Option<TokenCounts>, out: &mut BytesMut) {
        if self.state == StreamState::Ended {
            return;
        }
        self.begin(None, None, out);
        self.state = StreamState::Ended;
        self.blocks.close_all(&mut *self.encoder, out);
        let estimate = || TokenCounts {
            input: self.input_estimate,
            output: estimate_tokens(self.output_bytes),
            ..TokenCounts::default()
        };
        let tokens = tokens.unwrap_or_else(estimate);
        let calls = reason == FinishReason::EndTurn && self.blocks.has_tool_call();
        self.encoder.end(if calls { FinishReason::ToolCalls } else { reason }, tokens, out);
    }

    /// Ends the response with an error of the upstream.
    pub(super) fn fail(&mut self, message: &str, out: &mut BytesMut) {
        if self.state != StreamState::Ended {
            self.state = StreamState::Ended;
            self.encoder.fail(message, out);
        }
    }
}

/// Returns the text of an error, which is either a string or an object with a `message`.
pub(super) fn error_message(error: &Value) -> String {
    let message = error.get("message").unwrap_or(error);
    message.as_str().map_or_else(|| message.to_string(), str::to_owned)
}
