//! Who tells an answer: one narrator an API.

use bytes::BytesMut;

/// Tells an answer in the words of one API, as a stream; what was told is remembered as a whole, too.
///
/// Calls come in order: `begin`, then for each block `open`, `grow` any number of times and `close`, then
/// `end`; or `fail` at any time, and nothing after it.
pub(super) trait Narrator: Send {
    /// The answer begins; `input_estimate` is our own count of the prompt's tokens.
    fn begin(&mut self, id: Option<&str>, model: &str, input_estimate: u64, out: &mut BytesMut);
    /// A block begins.
    fn open(&mut self, index: usize, opening: Opening, out: &mut BytesMut);
    /// More of the open block.
    fn grow(&mut self, index: usize, text: &str, out: &mut BytesMut);
    /// The open block is whole.
    fn close(&mut self, index: usize, out: &mut BytesMut);
    /// The answer is whole.
    fn end(&mut self, reason: Reason, tokens: Tokens, out: &mut BytesMut);
    /// The model's side failed.
    fn fail(&mut self, message: &str, out: &mut BytesMut);
}

/// What a block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Opening {
    Text,
    Thinking,
    Tool { id: String, name: String },
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Done,
    Tools,
    TooLong,
    Refused,
}

/// Tokens of an answer; `input` does not count the cached ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
}

/// Writes an event with its name, which stands in its data as well.
pub(super) fn emit(out: &mut BytesMut, kind: &str, mut data: serde_json::Value) {
    data["type"] = kind.into();
    out.extend_from_slice(format!("event: {kind}\ndata: {data}\n\n").as_bytes());
}
