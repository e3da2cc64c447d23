//! Splits an event stream into the data of its events, however the bytes were cut on the way.

use memchr::memchr;

use crate::upstream::UpstreamFailure;

/// Reads the `data` of server-sent events. Other fields are skipped: every vendor repeats the event's name
/// in its data.
pub(crate) struct SseReader {
    limit: usize,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// Data of the event that is open.
    data: Vec<u8>,
    open: bool,
}

impl SseReader {
    /// A reader that takes events of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), data: Vec::new(), open: false }
    }

    /// Takes the next bytes and hands each finished event to `on_event`.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut on_event: impl FnMut(&[u8])) -> Result<(), UpstreamFailure> {
        while let Some(end) = memchr(b'\n', bytes) {
            let (head, tail) = (&bytes[..end], &bytes[end + 1..]);
            bytes = tail;
            if let Some(data) = self.whole_event(head, tail) {
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
            self.check()?;
        }
        self.line.extend_from_slice(bytes);
        self.check()
    }

    /// The stream has ended: hands out an event whose closing blank line never came.
    pub(crate) fn finish(&mut self, mut on_event: impl FnMut(&[u8])) {
        let line = std::mem::take(&mut self.line);
        self.take_line(&line, &mut on_event);
        self.take_line(b"", &mut on_event);
    }

    /// The data of an event that is all in one line, with its end right after it. Nearly all are, and need not be kept.
    fn whole_event<'b>(&self, line: &'b [u8], after: &[u8]) -> Option<&'b [u8]> {
        let alone = !self.open && self.line.is_empty() && after.first() == Some(&b'\n');
        value(line).filter(|data| alone && data.len() <= self.limit)
    }

    fn check(&self) -> Result<(), UpstreamFailure> {
        if self.line.len() + self.data.len() > self.limit {
            return Err(UpstreamFailure::TooLong { limit: self.limit });
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8], on_event: &mut impl FnMut(&[u8])) {
        if without_return(line).is_empty() {
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

/// The value of a line of data.
fn value(line: &[u8]) -> Option<&[u8]> {
    let value = without_return(line).strip_prefix(b"data:")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

fn without_return(line: &[u8]) -> &[u8] {
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
    fn data_is_found_whatever_the_line_ends_and_fields_around_it() {
        let stream = b": hello\r\nevent: a\r\ndata: 1\r\n\r\ndata:2\n\nid: 7\n\ndata: 3\ndata: 4\n\ndata: last";
        assert_eq!(read(&[stream]), ["1", "2", "3\n4", "last"]);
    }

    #[test]
    fn a_line_that_never_ends_is_given_up_at_the_limit() {
        let mut reader = SseReader::new(100);
        let failed = (0..100).find(|_| reader.push(b"data: 0123456789", |_| {}).is_err());
        assert_eq!(failed, Some(6));
    }

    #[test]
    fn many_data_lines_of_one_event_are_given_up_at_the_limit_too() {
        let mut reader = SseReader::new(100);
        assert!((0..100).any(|_| reader.push(b"data: 0123456789\n", |_| {}).is_err()));
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(bytes in "(data: ?[a-z]{0,9}|event: x|\r?\n|:){0,40}", cuts in prop::collection::vec(0usize..400, 0..12)) {
            let bytes = bytes.as_bytes();
            let mut at: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&chunks), read(&[bytes]));
        }
    }
}
