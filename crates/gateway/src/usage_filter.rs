//! Takes the usage event out of a chat stream whose client did not ask for it.

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use serde::Deserialize;

/// Passes whole events and drops the one that carries only usage.
#[derive(Default)]
pub(crate) struct UsageFilter {
    /// The beginning of an event whose end has not come.
    open: BytesMut,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<serde::de::IgnoredAny>,
    usage: Option<serde::de::IgnoredAny>,
}

impl UsageFilter {
    /// The next bytes for the client; none: only a part of an event has come, or the hidden one.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<Bytes> {
        self.open.extend_from_slice(bytes);
        let mut shown = BytesMut::new();
        while let Some(end) = end_of_event(&self.open) {
            let event = self.open.split_to(end);
            if !is_usage(&event) {
                shown.extend_from_slice(&event);
            }
        }
        (!shown.is_empty()).then(|| shown.freeze())
    }

    /// What is left when nothing more comes.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        let rest = self.open.split().freeze();
        (!rest.is_empty()).then_some(rest)
    }
}

/// Where the first event ends, blank line included.
fn end_of_event(text: &[u8]) -> Option<usize> {
    let feeds = memmem::find(text, b"\n\n").map(|at| at + 2);
    let returns = memmem::find(text, b"\r\n\r\n").map(|at| at + 4);
    feeds.into_iter().chain(returns).min()
}

fn is_usage(event: &[u8]) -> bool {
    let Some(data) = event.strip_prefix(b"data:") else { return false };
    serde_json::from_slice::<Chunk>(data.trim_ascii())
        .is_ok_and(|chunk| chunk.choices.is_empty() && chunk.usage.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\"\"}}],\"usage\":null}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\r\n\r\ndata: [DONE]\n\n";

    #[test]
    fn only_the_usage_event_is_taken_out_however_the_stream_is_cut() {
        for size in 1..STREAM.len() {
            let mut filter = UsageFilter::default();
            let mut shown: Vec<u8> =
                STREAM.as_bytes().chunks(size).filter_map(|piece| filter.push(piece)).flatten().collect();
            shown.extend(filter.finish().into_iter().flatten());
            let shown = String::from_utf8(shown).unwrap();
            assert_eq!(shown, STREAM.replace("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\r\n\r\n", ""));
        }
    }
}
