//! Removes the usage event from a chat stream whose client did not ask for usage.

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use serde::Deserialize;

/// Forwards complete events and drops the event that holds only the usage.
#[derive(Default)]
pub(crate) struct UsageFilter {
    /// The start of an event whose end has not arrived.
    open: BytesMut,
}

#[derive(Deserialize)]
struct ChatChunk {
    #[serde(default)]
    choices: Vec<serde::de::IgnoredAny>,
    usage: Option<serde::de::IgnoredAny>,
}

impl UsageFilter {
    /// Takes the next bytes of the stream and returns the complete events for the client, if there are any.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<Bytes> {
        self.open.extend_from_slice(bytes);
        let mut visible = BytesMut::new();
        while let Some(end) = end_of_event(&self.open) {
            let event = self.open.split_to(end);
            if !is_usage(&event) {
                visible.extend_from_slice(&event);
            }
        }
        (!visible.is_empty()).then(|| visible.freeze())
    }

    /// Returns the incomplete event at the end of the stream, if there is one.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        let rest = self.open.split().freeze();
        (!rest.is_empty()).then_some(rest)
    }
}

/// Returns the length of the first event with its blank line.
fn end_of_event(text: &[u8]) -> Option<usize> {
    let after_lf = memmem::find(text, b"\n\n").map(|at| at + 2);
    let after_crlf = memmem::find(text, b"\r\n\r\n").map(|at| at + 4);
    after_lf.into_iter().chain(after_crlf).min()
}

fn is_usage(event: &[u8]) -> bool {
    let Some(data) = event.strip_prefix(b"data:") else { return false };
    serde_json::from_slice::<ChatChunk>(data.trim_ascii())
        .is_ok_and(|chunk| chunk.choices.is_empty() && chunk.usage.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\"\"}}],\"usage\":null}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\r\n\r\ndata: [DONE]\n\n";

    #[test]
    fn only_the_usage_event_is_removed_for_any_frame_size() {
        for size in 1..STREAM.len() {
            let mut filter = UsageFilter::default();
            let mut visible: Vec<u8> =
                STREAM.as_bytes().chunks(size).filter_map(|piece| filter.push(piece)).flatten().collect();
            visible.extend(filter.finish().into_iter().flatten());
            let visible = String::from_utf8(visible).unwrap();
            assert_eq!(visible, STREAM.replace("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\r\n\r\n", ""));
        }
    }
}
