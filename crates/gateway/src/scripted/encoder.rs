//! Encoders that write a scripted reply in each API, as one document or as a stream of events.

mod chat;
mod gemini;
mod messages;
mod responses;

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::{
    output::{OutputStep, split_text},
    reply::{ReplyPart, ScriptedReply},
    script::ScriptedError,
};
use crate::endpoint::ModelEndpoint;

/// Writes replies in one API.
pub(super) trait ResponseEncoder {
    /// Returns the reply as one JSON document.
    fn encode_document(&self, reply: &ScriptedReply) -> Value;
    /// Returns the body of an error response.
    fn encode_error(&self, failure: &ScriptedError) -> Value;
    /// Writes the events that open a stream.
    fn begin(&mut self, reply: &ScriptedReply, out: &mut EventWriter);
    /// Writes the events of a text, thinking or tool call part; other parts are never passed.
    fn encode_block(&mut self, part: &ReplyPart, reply: &ScriptedReply, out: &mut EventWriter);
    /// Writes the event that ends a stream with an error.
    fn encode_failure(&mut self, failure: &ScriptedError, out: &mut EventWriter);
    /// Writes the events that end a complete stream.
    fn end(&mut self, reply: &ScriptedReply, out: &mut EventWriter);
}

/// Returns the encoder for the API of `endpoint`.
pub(super) fn encoder_for(endpoint: ModelEndpoint) -> Box<dyn ResponseEncoder + Send> {
    match endpoint {
        ModelEndpoint::Messages | ModelEndpoint::CountTokens => Box::new(messages::MessagesEncoder::default()),
        ModelEndpoint::ChatCompletions => Box::new(chat::ChatEncoder::default()),
        ModelEndpoint::Responses => Box::new(responses::ResponsesEncoder::default()),
        ModelEndpoint::GenerateContent | ModelEndpoint::StreamGenerateContent => Box::new(gemini::GeminiEncoder),
    }
}

/// Returns the output steps of a streamed reply; a `fail` part ends the stream early.
pub(super) fn encode_stream(encoder: &mut dyn ResponseEncoder, reply: &ScriptedReply) -> Vec<OutputStep> {
    let mut out = EventWriter { steps: Vec::new() };
    encoder.begin(reply, &mut out);
    for part in &reply.parts {
        match part {
            ReplyPart::Wait(time) => out.steps.push(OutputStep::Wait(*time)),
            ReplyPart::Raw(raw) => out.steps.push(OutputStep::Bytes(Bytes::from(raw.clone()))),
            ReplyPart::Cut => out.steps.push(OutputStep::Cut),
            ReplyPart::Hang => out.steps.push(OutputStep::Hang),
            ReplyPart::Fail(failure) => {
                encoder.encode_failure(failure, &mut out);
                return out.steps;
            }
            ReplyPart::Text(_) | ReplyPart::Thinking(_) | ReplyPart::Tool { .. } => {
                encoder.encode_block(part, reply, &mut out);
            }
        }
    }
    encoder.end(reply, &mut out);
    out.steps
}

/// Collects the output steps of a stream.
pub(super) struct EventWriter {
    steps: Vec<OutputStep>,
}

impl EventWriter {
    /// Writes a server-sent event with a name.
    fn write_named_event(&mut self, name: &str, data: &Value) {
        self.steps.push(OutputStep::Bytes(Bytes::from(format!("event: {name}\ndata: {data}\n\n"))));
    }

    /// Writes a server-sent event without a name.
    fn write_event(&mut self, data: &Value) {
        self.steps.push(OutputStep::Bytes(Bytes::from(format!("data: {data}\n\n"))));
    }

    /// Writes the `[DONE]` event that ends `OpenAI` streams.
    fn write_done(&mut self) {
        self.steps.push(OutputStep::Bytes(Bytes::from_static(b"data: [DONE]\n\n")));
    }

    /// Calls `piece` for each piece of `text`, with the script's delay before each.
    fn write_paced(&mut self, text: &str, reply: &ScriptedReply, mut piece: impl FnMut(&mut Self, String)) {
        for chunk in split_text(text, reply.pace) {
            if reply.pace.delay_ms > 0 {
                self.steps.push(OutputStep::Wait(Duration::from_millis(reply.pace.delay_ms)));
            }
            piece(self, chunk);
        }
    }
}
