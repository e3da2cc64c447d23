//! An agent's output, line by line, in bounded memory.
//!
//! A line of any length is read to its end; what is longer than the cap is cut, and said. `next` may be
//! dropped at any moment and loses nothing: what was read stays in the reader.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest line that is kept whole.
pub(crate) const LINE_CAP: usize = 16 * 1024 * 1024;

/// What an idle reader holds on to. A reader that finds more than that waiting makes room for more next time.
const CHUNK: usize = 128;
const MOST: usize = 64 * 1024;

/// One line, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its bytes, up to the cap.
    pub(crate) bytes: Vec<u8>,
    /// How many bytes were cut; zero for a line that is whole.
    pub(crate) cut: u64,
}

/// Splits a stream into lines.
pub(crate) struct LineReader<R> {
    stream: R,
    cap: usize,
    /// Bytes read and not yet given out; everything before `scanned` holds no newline.
    buffer: Vec<u8>,
    scanned: usize,
    /// Room for the next read.
    room: usize,
    cut: u64,
    ended: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads `stream`; keeps at most `cap` bytes of a line.
    pub(crate) fn new(stream: R, cap: usize) -> Self {
        Self { stream, cap, buffer: Vec::new(), scanned: 0, room: CHUNK, cut: 0, ended: false }
    }

    /// The next line, or `None` at the end. A last line without a newline counts.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(self.take_rest());
            }
            self.buffer.reserve(self.room);
            let free = self.buffer.capacity() - self.buffer.len();
            // `read_buf` appends or does nothing, so dropping this future between polls is harmless.
            let count = self.stream.read_buf(&mut self.buffer).await?;
            self.ended = count == 0;
            self.room = if count == free { (2 * self.room).min(MOST) } else { CHUNK };
        }
    }

    fn take_line(&mut self) -> Option<Line> {
        let Some(at) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            self.forget_what_is_over();
            return None;
        };
        let end = self.scanned + at;
        let rest = self.buffer.split_off(end + 1);
        let mut bytes = std::mem::replace(&mut self.buffer, rest);
        bytes.pop();
        self.scanned = 0;
        Some(self.finish(bytes))
    }

    fn take_rest(&mut self) -> Option<Line> {
        if self.buffer.is_empty() && self.cut == 0 {
            return None;
        }
        let bytes = std::mem::take(&mut self.buffer);
        self.scanned = 0;
        Some(self.finish(bytes))
    }

    fn finish(&mut self, mut bytes: Vec<u8>) -> Line {
        if bytes.len() > self.cap {
            self.cut += (bytes.len() - self.cap) as u64;
            bytes.truncate(self.cap);
        }
        Line { bytes, cut: std::mem::take(&mut self.cut) }
    }

    fn forget_what_is_over(&mut self) {
        if self.buffer.len() > self.cap {
            self.cut += (self.buffer.len() - self.cap) as u64;
            self.buffer.truncate(self.cap);
        }
        self.scanned = self.buffer.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn lines(text: &[u8], cap: usize) -> Vec<Line> {
        let mut reader = LineReader::new(text, cap);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    fn whole(text: &str) -> Line {
        Line { bytes: text.as_bytes().to_vec(), cut: 0 }
    }

    #[tokio::test]
    async fn lines_are_split_and_the_last_needs_no_newline() {
        assert_eq!(lines(b"one\n\ntwo", 100).await, [whole("one"), whole(""), whole("two")]);
        assert_eq!(lines(b"one\n", 100).await, [whole("one")]);
        assert_eq!(lines(b"", 100).await, []);
    }

    #[tokio::test]
    async fn a_line_of_ten_megabytes_is_read_whole() {
        let mut text = vec![b'x'; 10 * 1024 * 1024];
        text.extend_from_slice(b"\nnext\n");
        let read = lines(&text, LINE_CAP).await;
        assert_eq!(read.iter().map(|line| (line.bytes.len(), line.cut)).collect::<Vec<_>>(), [(10 << 20, 0), (4, 0)]);
    }

    #[tokio::test]
    async fn a_line_over_the_cap_is_cut_and_memory_stays_bounded() {
        let endless = tokio::io::repeat(b'x').take(50 * 1024 * 1024);
        let mut reader = LineReader::new(endless.chain(&b"\nnext"[..]), 1000);
        let line = reader.next().await.unwrap().unwrap();
        assert_eq!((line.bytes.len(), line.cut), (1000, (50 << 20) - 1000));
        assert!(reader.buffer.capacity() < 8 * CHUNK, "kept {} bytes", reader.buffer.capacity());
        assert_eq!(reader.next().await.unwrap(), Some(whole("next")));
    }

    #[tokio::test]
    async fn a_dropped_wait_loses_nothing() {
        let (mut writer, stream) = tokio::io::duplex(64);
        let mut reader = LineReader::new(stream, 100);
        tokio::io::AsyncWriteExt::write_all(&mut writer, b"half").await.unwrap();
        let waited = tokio::time::timeout(std::time::Duration::from_millis(5), reader.next()).await;
        assert!(waited.is_err(), "there was no whole line yet");
        tokio::io::AsyncWriteExt::write_all(&mut writer, b" done\n").await.unwrap();
        assert_eq!(reader.next().await.unwrap(), Some(whole("half done")));
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(parts in prop::collection::vec("[a-z]{0,9}", 0..20), cap in 1usize..12) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let text = [parts.join("\n"), String::new()].join(if parts.is_empty() { "" } else { "\n" });
            let read = runtime.block_on(lines(text.as_bytes(), cap));
            prop_assert_eq!(read.len(), parts.len());
            for (line, part) in read.iter().zip(&parts) {
                prop_assert_eq!(line.bytes.len() as u64 + line.cut, part.len() as u64);
                prop_assert!(part.as_bytes().starts_with(&line.bytes));
            }
        }
    }
}
