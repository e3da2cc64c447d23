//! The interface of encoders that write a response in one API.

use bytes::BytesMut;
use serde_json::Value;

/// Writes a response as a stream of one API, and collects the complete document as well.
///
/// Call order: `begin`; for each block `open_block`, `extend_block` any number of times, `close_block`; then `end`.
/// `fail` may come at any time and is the last call.
pub(super) trait StreamEncoder: Send {
    /// Starts the response; `input_estimate` is the estimated number of prompt tokens.
    fn begin(&mut self, id: Option<&str>, model: &str, input_estimate: u64, out: &mut BytesMut);
    /// Starts a block.
    fn open_block(&mut self, index: usize, start: BlockStart, out: &mut BytesMut);
    /// Appends text to the open block.
    fn extend_block(&mut self, index: usize, text: &str, out: &mut BytesMut);
    /// Ends the open block; `signature` is the vendor's signature of reasoning.
    fn close_block(&mut self, index: usize, signature: Option<&str>, out: &mut BytesMut);
    /// Ends the complete response.
    fn end(&mut self, reason: FinishReason, tokens: TokenCounts, out: &mut BytesMut);
    /// Ends the response with an error of the upstream.
    fn fail(&mut self, message: &str, out: &mut BytesMut);
    /// Takes the complete document after `end`, or the error after `fail`.
    fn take_document(&mut self) -> Value;
}

/// The kind of a block, with the data that its first event needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BlockStart {
    Text,
    Thinking,
    Tool { id: String, name: String },
}

/// The reason why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FinishReason {
    EndTurn,
    ToolCalls,
    MaxTokens,
    Refusal,
}

/// Token counts of a response; `input` excludes all tokens that were read from a cache or written to one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TokenCounts {
    pub(super) input: u64,
    pub(super) cached: u64,
    /// Tokens written to a cache, those for an hour included.
    pub(super) cache_written: u64,
    /// Tokens written to a cache for an hour.
    pub(super) cache_written_1h: u64,
    /// All generated tokens, reasoning included.
    pub(super) output: u64,
    pub(super) reasoning: u64,
}

impl TokenCounts {
    /// Returns all tokens of the prompt.
    pub(super) fn prompt(&self) -> u64 {
        self.input + self.cached + self.cache_written
    }

    /// Adds the counts that only Anthropic reports, in the fields that proxies use for them. The meter reads them.
    pub(super) fn add_cache_writes(&self, usage: &mut Value) {
        if self.cache_written > 0 {
            usage["cache_creation_input_tokens"] = self.cache_written.into();
        }
        if self.cache_written_1h > 0 {
            usage["cache_creation"] = serde_json::json!({
                "ephemeral_5m_input_tokens": self.cache_written - self.cache_written_1h.min(self.cache_written),
                "ephemeral_1h_input_tokens": self.cache_written_1h,
            });
        }
    }
}

/// Appends a named server-sent event; the name is added to the data as `type`.
pub(super) fn write_event(out: &mut BytesMut, kind: &str, mut data: Value) {
    data["type"] = kind.into();
    out.extend_from_slice(format!("event: {kind}\ndata: {data}\n\n").as_bytes());
}
