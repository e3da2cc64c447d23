//! Bytes as they come from a peer, with those that were read ahead.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

/// How much is read at a time while a head is being looked for.
const STEP: usize = 8 << 10;

/// Why a head could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    /// The peer closed, having said nothing or half of it.
    #[error("the connection was closed in the middle of a head")]
    Closed,
    /// No end within the limit.
    #[error("the head is larger than {0} bytes")]
    TooLarge(usize),
    /// The system said no.
    #[error("cannot read")]
    Io(#[from] io::Error),
}

/// A reader that can look before it takes.
pub(crate) struct Source<R> {
    reader: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Source<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new() }
    }

    /// What was read and not taken yet.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.buffer
    }

    /// Takes `count` of the bytes read ahead, or all of them.
    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(count.min(self.buffer.len()));
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Reads more; 0 means that the peer has closed.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(STEP);
        self.reader.read_buf(&mut self.buffer).await
    }

    /// Reads until `count` bytes are there; false when the peer closed before that.
    pub(crate) async fn has(&mut self, count: usize) -> io::Result<bool> {
        while self.buffer.len() < count {
            if self.fill().await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes everything up to and with the first empty line.
    pub(crate) async fn head(&mut self, limit: usize) -> Result<Vec<u8>, HeadError> {
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

    /// Reads into `target`, from what was read ahead first.
    pub(crate) async fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.buffer.is_empty() {
            return self.reader.read(target).await;
        }
        let count = target.len().min(self.buffer.len());
        target[..count].copy_from_slice(&self.take(count));
        Ok(count)
    }

    /// The same, for those who speak a protocol on it.
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
    async fn a_head_ends_at_the_first_empty_line_however_it_arrives() {
        let (mut peer, ours) = tokio::io::duplex(1);
        let mut source = Source::new(ours);
        let write = async move {
            use tokio::io::AsyncWriteExt as _;
            peer.write_all(b"GET / HTTP/1.1\r\na: b\r\n\r\nbody").await.unwrap();
        };
        let read = async {
            assert_eq!(source.head(100).await.unwrap(), b"GET / HTTP/1.1\r\na: b\r\n\r\n");
            assert!(source.has(4).await.unwrap() && !source.has(5).await.unwrap());
            assert_eq!(source.ahead(), b"body");
        };
        tokio::join!(write, read);
    }

    #[tokio::test]
    async fn a_head_over_the_limit_is_not_read_to_its_end() {
        let mut endless = Source::new(tokio::io::repeat(b'a'));
        assert!(matches!(endless.head(100).await, Err(HeadError::TooLarge(100))));
        let mut cut = Source::new(&b"GET / HT"[..]);
        assert!(matches!(cut.head(100).await, Err(HeadError::Closed)));
    }
}
