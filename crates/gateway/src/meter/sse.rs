//! A reader for server-sent events whose bytes arrive in arbitrary pieces.

use memchr::memchr;

use crate::upstream::UpstreamFailure;

/// Reads the `data` of server-sent events. Other fields are skipped, because every vendor repeats the event's name in
/// its data.
pub(crate) struct SseReader {
    limit: usize,
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
    /// The data of the open event.
    data: Vec<u8>,
    open: bool,
}

impl SseReader {
    /// Makes a reader for events of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), data: Vec::new(), open: false }
    }

    /// Takes the next bytes and passes the data of each complete event to `on_event`. Fails if an event is too long.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut on_event: impl FnMut(&[u8])) -> Result<(), UpstreamFailure> {
        while let Some(end) = memchr(b'\n', bytes) {
            let (head, tail) = (&bytes[..end], &bytes[end + 1..]);
            bytes = tail;
            if let Some(data) = self.single_line_event(head, tail) {
                on_event(data);
                bytes = &tail[1..];
            } else if self.line.is_empty() {
                self.take_line(head, &mut on_event);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.take_line(&line, &mut on_event);
                line.clear();
                self.line = line;
            }
            self.check_length()?;
        }
        self.line.extend_from_slice(bytes);
        self.check_length()
    }

    /// Ends the stream and passes on a last event that has no blank line behind it.
    pub(crate) fn finish(&mut self, mut on_event: impl FnMut(&[u8])) {
        let line = std::mem::take(&mut self.line);
        self.take_line(&line, &mut on_event);
        self.take_line(b"", &mut on_event);
    }

    /// Returns the data of an event that is one line with a blank line behind it. Nearly all are, and need no copy.
    fn single_line_event<'b>(&self, line: &'b [u8], after: &[u8]) -> Option<&'b [u8]> {
        let alone = !self.open && self.line.is_empty() && after.first() == Some(&b'\n');
        value(line).filter(|data| alone && data.len() <= self.limit)
    }

    fn check_length(&self) -> Result<(), UpstreamFailure> {
        if self.line.len() + self.data.len() > self.limit {
            return Err(UpstreamFailure::TooLong { limit: self.limit });
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8], on_event: &mut impl FnMut(&[u8])) {
        if trim_carriage_return(line).is_empty() {
            if std::mem::take(&mut self.open) {
                on_event(&self.data);
                self.data.clear();
            }
        } else if let Some(value) = value(line) {
            if self.open {
                self.data.push(b'\n');
            }
            self.open = true;
            self.data.extend_from_slice(value);
        }
    }
}

/// Returns the value of a `data` line.
fn value(line: &[u8]) -> Option<&[u8]> {
    let value = trim_carriage_return(line).strip_prefix(b"data:")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

fn trim_carriage_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<String> {
        let mut events = Vec::new();
        let mut reader = SseReader::new(1 << 20);
        let mut keep = |data: &[u8]| events.push(String::from_utf8_lossy(data).into_owned());
        for chunk in chunks {
            reader.push(chunk, &mut keep).unwrap();
        }
        reader.finish(&mut keep);
        events
    }

    #[test]
    fn data_is_read_with_any_line_ending_and_other_fields() {
        let stream = b": hello\r\nevent: a\r\ndata: 1\r\n\r\ndata:2\n\nid: 7\n\ndata: 3\ndata: 4\n\ndata: last";
        assert_eq!(read(&[stream]), ["1", "2", "3\n4", "last"]);
    }

    #[test]
    fn endless_line_fails_at_the_limit() {
        let mut reader = SseReader::new(100);
        let failed = (0..100).find(|_| reader.push(b"data: 0123456789", |_| {}).is_err());
        assert_eq!(failed, Some(6));
    }

    #[test]
    fn event_with_many_data_lines_fails_at_the_limit() {
        let mut reader = SseReader::new(100);
        assert!((0..100).any(|_| reader.push(b"data: 0123456789\n", |_| {}).is_err()));
    }

    proptest! {
        #[test]
        fn frame_boundaries_make_no_difference(bytes in "(data: ?[a-z]{0,9}|event: x|\r?\n|:){0,40}", cuts in prop::collection::vec(0usize..400, 0..12)) {
            let bytes = bytes.as_bytes();
            let mut at: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&chunks), read(&[bytes]));
        }
    }
}
