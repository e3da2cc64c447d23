//! A reader of server-sent events, for tests of the session API.

use std::io::{BufRead, Lines};

use serde_json::Value;

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseFrame {
    /// The id; empty when the frame has none.
    pub id: String,
    /// The event type; empty when the frame has none.
    pub event: String,
    /// The data, without line breaks.
    pub data: String,
}

impl SseFrame {
    /// Returns the id as a sequence number; `None` when the id is not a number.
    pub fn sequence(&self) -> Option<u64> {
        self.id.parse().ok()
    }

    /// Returns the data as JSON.
    #[expect(clippy::unwrap_used, reason = "only tests call this")]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

/// Iterator over the frames of a stream. It skips comments and `retry`, and ends when the stream ends or breaks.
#[derive(Debug)]
pub struct SseReader<R>(Lines<R>);

impl<R: BufRead> SseReader<R> {
    /// Returns the frames of `stream`.
    pub fn new(stream: R) -> Self {
        Self(stream.lines())
    }
}

impl<R: BufRead> Iterator for SseReader<R> {
    type Item = SseFrame;

    fn next(&mut self) -> Option<SseFrame> {
        let mut frame = SseFrame::default();
        loop {
            // A frame is complete after its empty line; an incomplete last frame is dropped here.
            let line = self.0.next()?.ok()?;
            match line.split_once(": ") {
                Some(("id", value)) => value.clone_into(&mut frame.id),
                Some(("event", value)) => value.clone_into(&mut frame.event),
                Some(("data", value)) => frame.data.push_str(value),
                None if line.is_empty() => {
                    let complete = std::mem::take(&mut frame);
                    if !complete.data.is_empty() || !complete.event.is_empty() {
                        return Some(complete);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the complete frames in `text`.
pub fn sse_frames(text: &str) -> Vec<SseFrame> {
    SseReader::new(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_frames_and_comments_are_skipped() {
        let text = "retry: 5\n\n: hello\n\nid: 1\nevent: a\ndata: {}\n\nid: x-2\ndata: []\n\nid: 3\ndata: {}\n";
        let frame = |id: &str, event: &str, data: &str| SseFrame {
            id: id.to_owned(),
            event: event.to_owned(),
            data: data.to_owned(),
        };
        let frames = sse_frames(text);
        assert_eq!(frames, [frame("1", "a", "{}"), frame("x-2", "", "[]")]);
        assert_eq!((frames[0].sequence(), frames[1].sequence()), (Some(1), None));
    }
}
