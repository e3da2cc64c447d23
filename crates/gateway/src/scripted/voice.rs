//! How an answer sounds in each API: as one document, and as a stream of events.

mod chat;
mod contents;
mod messages;
mod responses;

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::{
    document::Failure,
    emit::{Emission, chunks},
    reply::{Reply, Spoken},
};
use crate::endpoint::ModelEndpoint;

/// An API's way to put an answer.
pub(super) trait Voice {
    /// The whole answer.
    fn document(&self, reply: &Reply) -> Value;
    /// An error in place of an answer.
    fn error(&self, failure: &Failure) -> Value;
    /// A stream begins.
    fn begin(&mut self, reply: &Reply, out: &mut Out);
    /// A text, a thought or a tool call; nothing else comes here.
    fn block(&mut self, part: &Spoken, reply: &Reply, out: &mut Out);
    /// A stream ends with an error.
    fn fail(&mut self, failure: &Failure, out: &mut Out);
    /// A stream ends well.
    fn end(&mut self, reply: &Reply, out: &mut Out);
}

/// The voice of an endpoint.
pub(super) fn of(endpoint: ModelEndpoint) -> Box<dyn Voice + Send> {
    match endpoint {
        ModelEndpoint::Messages | ModelEndpoint::CountTokens => Box::new(messages::Messages::default()),
        ModelEndpoint::ChatCompletions => Box::new(chat::Chat::default()),
        ModelEndpoint::Responses => Box::new(responses::Responses::default()),
        ModelEndpoint::GenerateContent | ModelEndpoint::StreamGenerateContent => Box::new(contents::Contents),
    }
}

/// The whole answer as a stream.
pub(super) fn stream(voice: &mut dyn Voice, reply: &Reply) -> Vec<Emission> {
    let mut out = Out { emissions: Vec::new() };
    voice.begin(reply, &mut out);
    for part in &reply.parts {
        match part {
            Spoken::Wait(time) => out.emissions.push(Emission::Wait(*time)),
            Spoken::Raw(raw) => out.emissions.push(Emission::Bytes(Bytes::from(raw.clone()))),
            Spoken::Cut => out.emissions.push(Emission::Cut),
            Spoken::Hang => out.emissions.push(Emission::Hang),
            Spoken::Fail(failure) => {
                voice.fail(failure, &mut out);
                return out.emissions;
            }
            Spoken::Text(_) | Spoken::Thinking(_) | Spoken::Tool { .. } => voice.block(part, reply, &mut out),
        }
    }
    voice.end(reply, &mut out);
    out.emissions
}

/// Where a stream is written to.
pub(super) struct Out {
    emissions: Vec<Emission>,
}

impl Out {
    /// An event with a name.
    fn named(&mut self, name: &str, data: &Value) {
        self.emissions.push(Emission::Bytes(Bytes::from(format!("event: {name}\ndata: {data}\n\n"))));
    }

    /// An event without a name.
    fn data(&mut self, data: &Value) {
        self.emissions.push(Emission::Bytes(Bytes::from(format!("data: {data}\n\n"))));
    }

    /// The word some streams end with.
    fn done(&mut self) {
        self.emissions.push(Emission::Bytes(Bytes::from_static(b"data: [DONE]\n\n")));
    }

    /// The pieces of `text`, with the script's pause before each.
    fn paced(&mut self, text: &str, reply: &Reply, mut piece: impl FnMut(&mut Self, String)) {
        for chunk in chunks(text, reply.pace) {
            if reply.pace.delay_ms > 0 {
                self.emissions.push(Emission::Wait(Duration::from_millis(reply.pace.delay_ms)));
            }
            piece(self, chunk);
        }
    }
}
