//! A client for event streams of sessions.

use memchr::{memchr, memmem};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::{CALL_TIMEOUT, connect, request};

const READ_BYTES: usize = 32 << 10;

/// An open event stream.
pub(crate) struct Events {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// One received event.
pub(crate) struct Frame<'a> {
    pub(crate) id: u64,
    pub(crate) kind: &'a [u8],
    pub(crate) data: &'a [u8],
}

impl Events {
    /// Opens the stream of `session` behind the event `after`.
    pub(crate) async fn follow(address: &str, session: &str, after: u64) -> Result<Self, String> {
        Self::ask(address, "GET", &format!("/v1/sessions/{session}/events/sse?events=all&offset={after}"), "").await
    }

    /// Sends a request that is answered by a stream, and reads the head of the answer.
    pub(crate) async fn ask(address: &str, method: &str, path: &str, body: &str) -> Result<Self, String> {
        let mut stream = connect(address).await?;
        let text = request(method, path, address, "1.0", body);
        stream.write_all(text.as_bytes()).await.map_err(|error| format!("cannot ask: {error}"))?;
        let mut events = Self { stream, buffer: Vec::with_capacity(READ_BYTES) };
        let head = loop {
            if let Some(head) = memmem::find(&events.buffer, b"\r\n\r\n") {
                break head;
            }
            if !events.read().await? {
                return Err("the stream ended before it began".to_owned());
            }
        };
        let status = String::from_utf8_lossy(&events.buffer[..head]);
        if !status.starts_with("HTTP/1.0 200") {
            let said = String::from_utf8_lossy(&events.buffer).into_owned();
            return Err(format!("no stream: {said}"));
        }
        events.buffer.drain(..head + 4);
        Ok(events)
    }

    /// Waits for at least one event, and calls back for every received one; returns false at the end of the stream.
    pub(crate) async fn each(&mut self, mut show: impl FnMut(Frame<'_>) -> Result<(), String>) -> Result<bool, String> {
        loop {
            let (mut at, mut shown) = (0, 0);
            while let Some(end) = memmem::find(&self.buffer[at..], b"\n\n") {
                if let Some(frame) = frame(&self.buffer[at..at + end]) {
                    show(frame)?;
                    shown += 1;
                }
                at += end + 2;
            }
            self.buffer.drain(..at);
            if shown > 0 {
                return Ok(true);
            }
            if !self.read().await? {
                return Ok(false);
            }
        }
    }

    async fn read(&mut self) -> Result<bool, String> {
        self.buffer.reserve(READ_BYTES);
        let read = tokio::time::timeout(CALL_TIMEOUT, self.stream.read_buf(&mut self.buffer)).await;
        let count = read.map_err(|_| "no event in time")?.map_err(|error| format!("cannot read: {error}"))?;
        Ok(count > 0)
    }
}

/// Parses one frame; `None` for a comment.
fn frame(mut text: &[u8]) -> Option<Frame<'_>> {
    let (mut id, mut kind, mut data) = (None, &b""[..], &b""[..]);
    while !text.is_empty() {
        let end = memchr(b'\n', text).unwrap_or(text.len());
        let line = &text[..end];
        if let Some(number) = line.strip_prefix(b"id: ") {
            id = std::str::from_utf8(number).ok()?.parse().ok();
        } else if let Some(word) = line.strip_prefix(b"event: ") {
            kind = word;
        } else if let Some(json) = line.strip_prefix(b"data: ") {
            data = json;
        }
        text = text.get(end + 1..).unwrap_or_default();
    }
    Some(Frame { id: id?, kind, data })
}
