//! Relaying of bodies: decoded from one framing and encoded in another, so that each has exactly one length.

use std::io;

use bytes::Bytes;
use secret::Redactor;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::framing::BodyFraming;
use crate::{
    attempt::ConnectionBytes,
    copy::{CopyBuffer, Direction},
    peek_reader::PeekReader,
};

/// Longest chunk header line, extensions included.
const CHUNK_LINE: usize = 256;
/// Most bytes of trailers after the last chunk.
const TRAILERS: usize = 8 << 10;

/// Failure to relay a body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The sender failed or closed too early.
    #[error("cannot read the body")]
    Read(#[source] io::Error),
    /// The chunks are invalid.
    #[error("invalid chunked body: {0}")]
    Malformed(&'static str),
    /// The receiver failed.
    #[error("cannot forward the body")]
    Write(#[source] io::Error),
}

/// Relays one body.
pub(crate) struct BodyRelay<'a, R, W> {
    pub(crate) source: &'a mut PeekReader<R>,
    pub(crate) sink: &'a mut W,
    pub(crate) traffic: &'a ConnectionBytes,
    pub(crate) direction: Direction,
    /// Whether to write chunks.
    pub(crate) in_chunks: bool,
    /// Redactors of the secrets that must not pass.
    pub(crate) redactors: &'a mut [Redactor],
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> BodyRelay<'_, R, W> {
    /// Relays the bytes of the body and nothing after it.
    pub(crate) async fn run(mut self, framing: BodyFraming) -> Result<(), BodyError> {
        let mut buffer = CopyBuffer::new(self.traffic);
        match framing {
            BodyFraming::Length(length) => self.copy(&mut buffer, length).await?,
            BodyFraming::UntilClose => while self.piece(&mut buffer, u64::MAX).await? > 0 {},
            BodyFraming::Chunked => loop {
                let length = self.chunk_length().await?;
                if length == 0 {
                    self.skip_trailers().await?;
                    break;
                }
                self.copy(&mut buffer, length).await?;
                if self.line(2).await?.len() != 2 {
                    return Err(BodyError::Malformed("a chunk is longer than its length"));
                }
            },
        }
        for number in 0..self.redactors.len() {
            let held = self.redactors[number].finish();
            let rest = self.redactors[number + 1..].iter_mut().fold(held, |bytes, redactor| redactor.redact(bytes));
            self.write(&rest).await?;
        }
        if self.in_chunks {
            self.sink.write_all(b"0\r\n\r\n").await.map_err(BodyError::Write)?;
        }
        self.sink.flush().await.map_err(BodyError::Write)
    }

    async fn copy(&mut self, buffer: &mut CopyBuffer, mut left: u64) -> Result<(), BodyError> {
        while left > 0 {
            match self.piece(buffer, left).await? {
                0 => return Err(BodyError::Read(io::ErrorKind::UnexpectedEof.into())),
                count => left -= count as u64,
            }
        }
        Ok(())
    }

    async fn piece(&mut self, buffer: &mut CopyBuffer, limit: u64) -> Result<usize, BodyError> {
        let bytes = buffer.read(self.source, limit).await.map_err(BodyError::Read)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let count = bytes.len();
        self.direction.count(self.traffic, count);
        if self.redactors.is_empty() {
            self.write(bytes).await?;
        } else {
            let bytes = Bytes::copy_from_slice(bytes);
            let redacted = self.redactors.iter_mut().fold(bytes, |bytes, redactor| redactor.redact(bytes));
            self.write(&redacted).await?;
        }
        Ok(count)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        // An empty chunk would end the body.
        let written = if self.in_chunks && !bytes.is_empty() {
            let framed = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
            self.sink.write_all(&framed).await
        } else {
            self.sink.write_all(bytes).await
        };
        written.map_err(BodyError::Write)
    }

    async fn chunk_length(&mut self) -> Result<u64, BodyError> {
        let line = self.line(CHUNK_LINE).await?;
        // Chunk extensions have no use and are dropped.
        let digits = line[..line.len() - 2].split(|byte| *byte == b';').next().unwrap_or_default();
        if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(BodyError::Malformed("the length of a chunk is not a number"));
        }
        let digits = std::str::from_utf8(digits).ok();
        let length = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        length.ok_or(BodyError::Malformed("the length of a chunk is not a number"))
    }

    async fn skip_trailers(&mut self) -> Result<(), BodyError> {
        let mut left = TRAILERS;
        loop {
            let line = self.line(left).await?;
            if line.len() == 2 {
                return Ok(());
            }
            left = left.saturating_sub(line.len());
        }
    }

    /// Returns the next line with its line end; fails if it is longer than `limit` bytes.
    async fn line(&mut self, limit: usize) -> Result<Vec<u8>, BodyError> {
        loop {
            let ahead = self.source.buffered();
            if let Some(feed) = ahead.iter().take(limit).position(|byte| *byte == b'\n') {
                let line = self.source.take(feed + 1);
                let body = line.strip_suffix(b"\r\n").ok_or(BodyError::Malformed("a line ends in CR LF"))?;
                if body.iter().any(u8::is_ascii_control) {
                    return Err(BodyError::Malformed("a line has control characters"));
                }
                return Ok(line);
            }
            if ahead.len() >= limit {
                return Err(BodyError::Malformed("a line is too long"));
            }
            if self.source.fill().await.map_err(BodyError::Read)? == 0 {
                return Err(BodyError::Read(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn relay(body: &[u8], framing: BodyFraming, in_chunks: bool) -> Result<(Vec<u8>, Vec<u8>), BodyError> {
        let (mut source, mut sink) = (PeekReader::new(body), Vec::new());
        let traffic = ConnectionBytes::default();
        let relay = BodyRelay {
            source: &mut source,
            sink: &mut sink,
            traffic: &traffic,
            direction: Direction::Outbound,
            in_chunks,
            redactors: &mut [],
        };
        relay.run(framing).await?;
        source.fill().await.unwrap();
        let left = source.buffered().to_vec();
        Ok((sink, left))
    }

    #[tokio::test]
    async fn body_ends_where_its_framing_says() {
        let passed = relay(b"hello world", BodyFraming::Length(5), false).await.unwrap();
        assert_eq!(passed, (b"hello".to_vec(), b" world".to_vec()));
        let chunked = b"3\r\nabc\r\n000a;x=y\r\n0123456789\r\n0\r\nt: v\r\n\r\nGET /";
        let passed = relay(chunked, BodyFraming::Chunked, false).await.unwrap();
        assert_eq!(passed, (b"abc0123456789".to_vec(), b"GET /".to_vec()));
        let (written, _) = relay(chunked, BodyFraming::Chunked, true).await.unwrap();
        assert_eq!(written, b"3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n");
    }

    #[tokio::test]
    async fn ambiguous_framing_is_refused() {
        for body in [
            &b"3\nabc\n0\n\n"[..],
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"3\r\nabc0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b"+3\r\nabc\r\n0\r\n\r\n",
            b" 3\r\nabc\r\n0\r\n\r\n",
            b"\r\nabc\r\n0\r\n\r\n",
            b"ffffffffffffffffff\r\n",
            b"3;\rx\r\nabc\r\n0\r\n\r\n",
            b"3\r\nabc\r\n0\r\n",
            b"3\r\nab",
            &[b'1'; 300],
        ] {
            let text = String::from_utf8_lossy(body);
            assert!(relay(body, BodyFraming::Chunked, false).await.is_err(), "{text}");
        }
        assert!(relay(b"hell", BodyFraming::Length(5), false).await.is_err());
    }
}
