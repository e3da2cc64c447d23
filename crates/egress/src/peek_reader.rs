//! A reader that can look at bytes before it consumes them.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

/// Bytes to read at a time while searching for the end of a head.
const STEP: usize = 8 << 10;

/// Failure to read a head.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    /// The peer closed before the head was complete.
    #[error("the connection was closed before the HTTP header was complete")]
    Closed,
    /// The head does not end within the limit.
    #[error("the HTTP header is larger than {0} bytes")]
    TooLarge(usize),
    /// The connection failed.
    #[error("cannot read from the connection")]
    Io(#[from] io::Error),
}

/// A reader with a buffer of bytes that were read but not consumed.
pub(crate) struct PeekReader<R> {
    reader: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> PeekReader<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new() }
    }

    /// Returns the bytes that were read but not consumed.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer
    }

    /// Consumes and returns `count` buffered bytes, or all of them if there are fewer.
    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(count.min(self.buffer.len()));
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Reads more bytes into the buffer; returns 0 if the peer has closed.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(STEP);
        self.reader.read_buf(&mut self.buffer).await
    }

    /// Reads until `count` bytes are buffered; returns false if the peer closed before that.
    pub(crate) async fn fill_to(&mut self, count: usize) -> io::Result<bool> {
        while self.buffer.len() < count {
            if self.fill().await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Consumes and returns all bytes up to and including the first empty line.
    pub(crate) async fn read_head(&mut self, limit: usize) -> Result<Vec<u8>, HeadError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].windows(4).position(|four| four == b"\r\n\r\n") {
                let end = searched + at + 4;
                return if end <= limit { Ok(self.take(end)) } else { Err(HeadError::TooLarge(limit)) };
            }
            if self.buffer.len() >= limit {
                return Err(HeadError::TooLarge(limit));
            }
            searched = self.buffer.len().saturating_sub(3);
            if self.fill().await? == 0 {
                return Err(HeadError::Closed);
            }
        }
    }

    /// Reads into `target`, from the buffer first.
    pub(crate) async fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.buffer.is_empty() {
            return self.reader.read(target).await;
        }
        let count = target.len().min(self.buffer.len());
        target[..count].copy_from_slice(&self.take(count));
        Ok(count)
    }

    /// Reads like [`PeekReader::read`], for use as an `AsyncRead`.
    pub(crate) fn poll_read(&mut self, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.buffer.is_empty() {
            return Pin::new(&mut self.reader).poll_read(context, into);
        }
        into.put_slice(&self.take(into.remaining()));
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn head_ends_at_the_first_empty_line_however_it_arrives() {
        let (mut peer, ours) = tokio::io::duplex(1);
        let mut source = PeekReader::new(ours);
        let write = async move {
            use tokio::io::AsyncWriteExt as _;
            peer.write_all(b"GET / HTTP/1.1\r\na: b\r\n\r\nbody").await.unwrap();
        };
        let read = async {
            assert_eq!(source.read_head(100).await.unwrap(), b"GET / HTTP/1.1\r\na: b\r\n\r\n");
            assert!(source.fill_to(4).await.unwrap() && !source.fill_to(5).await.unwrap());
            assert_eq!(source.buffered(), b"body");
        };
        tokio::join!(write, read);
    }

    #[tokio::test]
    async fn head_over_the_limit_is_refused() {
        let mut endless = PeekReader::new(tokio::io::repeat(b'a'));
        assert!(matches!(endless.read_head(100).await, Err(HeadError::TooLarge(100))));
        let mut cut = PeekReader::new(&b"GET / HT"[..]);
        assert!(matches!(cut.read_head(100).await, Err(HeadError::Closed)));
    }
}
