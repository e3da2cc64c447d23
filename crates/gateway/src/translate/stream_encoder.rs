//! The interface of encoders that write a response in one API.

use bytes::BytesMut;

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
    /// Ends the open block.
    fn close_block(&mut self, index: usize, out: &mut BytesMut);
    /// Ends the complete response.
    fn end(&mut self, reason: FinishReason, tokens: TokenCounts, out: &mut BytesMut);
    /// Ends the response with an error of the upstream.
    fn fail(&mut self, message: &str, out: &mut BytesMut);
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

/// Token counts of a response; `input` excludes the cached tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenCounts {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
}

/// Appends a named server-sent event; the name is added to the data as `type`.
pub(super) fn write_event(out: &mut BytesMut, kind: &str, mut data: serde_json::Value) {
    data["type"] = kind.into();
    out.extend_from_slice(format!("event: {kind}\ndata: {data}\n\n").as_bytes());
}
