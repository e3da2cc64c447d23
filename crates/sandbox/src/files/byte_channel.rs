//! A channel for bytes between a task and a thread.
//!
//! The reader sees the end only when the writer has finished. A writer that is dropped before makes the read fail.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::sync::mpsc;

use super::ByteStream;

const CHUNK_BYTES: usize = 64 * 1024;
const CHANNEL_CHUNKS: usize = 4;

/// A message of the channel.
enum Chunk {
    Bytes(Vec<u8>),
    End,
    Failed(io::Error),
}

/// Returns the two ends of a channel.
pub(super) fn byte_channel() -> (ByteSender, ByteReceiver) {
    let (sender, receiver) = mpsc::channel(CHANNEL_CHUNKS);
    (
        ByteSender { sender, buffer: Vec::new() },
        ByteReceiver { chunks: receiver, chunk: Vec::new(), taken: 0, ended: false },
    )
}

/// The writing end.
pub(super) struct ByteSender {
    sender: mpsc::Sender<Chunk>,
    buffer: Vec<u8>,
}

impl ByteSender {
    /// Sends all of `source`, from a task. Returns the error of the source.
    pub(super) async fn send_all(self, mut source: ByteStream) -> io::Result<()> {
        loop {
            let mut bytes = vec![0; CHUNK_BYTES];
            let read = source.read(&mut bytes).await;
            let (chunk, outcome) = match read {
                Ok(0) => (Chunk::End, Some(Ok(()))),
                Ok(count) => {
                    bytes.truncate(count);
                    (Chunk::Bytes(bytes), None)
                }
                Err(error) => (Chunk::Failed(error.kind().into()), Some(Err(error))),
            };
            // A reader that has stopped reports its own error.
            if self.sender.send(chunk).await.is_err() {
                return Ok(());
            }
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    /// Ends the stream, from a thread, or makes it fail with an error.
    pub(super) fn finish(mut self, outcome: io::Result<()>) {
        let outcome = outcome.and_then(|()| self.flush());
        let _ = self.sender.blocking_send(outcome.map_or_else(Chunk::Failed, |()| Chunk::End));
    }
}

impl Write for ByteSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = Chunk::Bytes(std::mem::take(&mut self.buffer));
        self.sender.blocking_send(chunk).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// The reading end.
pub(super) struct ByteReceiver {
    chunks: mpsc::Receiver<Chunk>,
    chunk: Vec<u8>,
    taken: usize,
    ended: bool,
}

impl ByteReceiver {
    fn accept(&mut self, chunk: Option<Chunk>) -> io::Result<()> {
        match chunk {
            Some(Chunk::Bytes(bytes)) => (self.chunk, self.taken) = (bytes, 0),
            Some(Chunk::End) => self.ended = true,
            Some(Chunk::Failed(error)) => return Err(error),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }

    fn needs_chunk(&self) -> bool {
        self.taken == self.chunk.len() && !self.ended
    }

    fn take_bytes(&mut self, limit: usize) -> &[u8] {
        let count = limit.min(self.chunk.len() - self.taken);
        self.taken += count;
        &self.chunk[self.taken - count..self.taken]
    }
}

impl Read for ByteReceiver {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.needs_chunk() {
            let chunk = self.chunks.blocking_recv();
            self.accept(chunk)?;
        }
        let taken = Self::take_bytes(self, buffer.len());
        buffer[..taken.len()].copy_from_slice(taken);
        Ok(taken.len())
    }
}

impl AsyncRead for ByteReceiver {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.needs_chunk() {
            let chunk = ready!(self.chunks.poll_recv(context));
            self.accept(chunk)?;
        }
        let limit = buffer.remaining();
        buffer.put_slice(Self::take_bytes(&mut self, limit));
        Poll::Ready(Ok(()))
    }
}
