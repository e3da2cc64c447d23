//! Listens to a chat server, whole or streamed, and has what it says told in another API's words.

use bytes::BytesMut;

use super::{
    answer::EventTranslator,
    blocks::{Blocks, ToolPiece},
    chat::{self, Answer, Content, Message},
    estimate_tokens,
    narrator::{Narrator, Reason, Tokens},
};
use crate::upstream::UpstreamFailure;

/// Listens to one answer.
pub(super) struct Listener<N> {
    narrator: N,
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

impl<N: Narrator> Listener<N> {
    /// Has `narrator` tell an answer to a prompt of about `input_estimate` tokens.
    pub(super) fn new(narrator: N, input_estimate: u64) -> Self {
        Self {
            narrator,
            input_estimate,
            state: State::NotBegun,
            blocks: Blocks::default(),
            finish_reason: None,
            usage: None,
            written: 0,
        }
    }

    /// Hears a whole completion, and gives the narrator back.
    pub(super) fn whole(mut self, body: &[u8]) -> Result<N, UpstreamFailure> {
        // Where it is told is of no interest: the narrator remembers.
        let mut out = BytesMut::new();
        self.event(body, &mut out)?;
        if self.state == State::Begun {
            self.finish(&mut out);
        }
        Ok(self.narrator)
    }

    fn begin(&mut self, id: Option<&str>, model: Option<&str>, out: &mut BytesMut) {
        if self.state == State::NotBegun {
            self.state = State::Begun;
            self.narrator.begin(id.filter(|id| !id.is_empty()), model.unwrap_or_default(), self.input_estimate, out);
        }
    }

    fn hear(&mut self, message: Message) {
        if let Some(thought) = message.thoughts() {
            self.written += thought.len();
            self.blocks.thinking(thought);
        }
        let text = message.content.map(Content::into_text).filter(|text| !text.is_empty()).or(message.refusal);
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
        self.blocks.close(&mut self.narrator, out);
        let tokens = match &self.usage {
            Some(told) => Tokens {
                input: told.prompt_tokens.saturating_sub(told.cached()),
                cached: told.cached(),
                output: told.completion_tokens,
            },
            None => Tokens { input: self.input_estimate, cached: 0, output: estimate_tokens(self.written) },
        };
        let reason = reason(self.finish_reason.as_deref(), self.blocks.has_tool());
        self.narrator.end(reason, tokens, out);
    }
}

impl<N: Narrator> EventTranslator for Listener<N> {
    fn event(&mut self, data: &[u8], out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        if self.state == State::Ended {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.finish(out);
            return Ok(());
        }
        let chunk: Answer =
            serde_json::from_slice(data).map_err(|error| UpstreamFailure::InvalidResponse(error.to_string()))?;
        if let Some(error) = &chunk.error {
            self.state = State::Ended;
            self.narrator.fail(&chat::error_message(error), out);
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
        self.blocks.send(&mut self.narrator, out)
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

/// Servers say `stop` after tool calls, too; a client would not run them then.
fn reason(finish_reason: Option<&str>, has_tool: bool) -> Reason {
    match finish_reason {
        Some("length") => Reason::TooLong,
        Some("content_filter") => Reason::Refused,
        Some("tool_calls" | "function_call") => Reason::Tools,
        _ if has_tool => Reason::Tools,
        _ => Reason::Done,
    }
}
