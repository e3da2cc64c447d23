//! Bytes between a task and a thread. A stream ends when its writer said so, and breaks when the writer is gone.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::sync::mpsc;

use super::ByteStream;

const PIECE: usize = 64 * 1024;
const AHEAD: usize = 4;

/// A part of a stream.
enum Piece {
    Bytes(Vec<u8>),
    End,
    Failed(io::Error),
}

/// Two ends of a stream.
pub(super) fn bridge() -> (Sender, Receiver) {
    let (sender, receiver) = mpsc::channel(AHEAD);
    (Sender { sender, buffer: Vec::new() }, Receiver { pieces: receiver, piece: Vec::new(), taken: 0, ended: false })
}

/// Where bytes go in.
pub(super) struct Sender {
    sender: mpsc::Sender<Piece>,
    buffer: Vec<u8>,
}

impl Sender {
    /// Hands on all of `source`, from a task. The error is the source's.
    pub(super) async fn feed(self, mut source: ByteStream) -> io::Result<()> {
        loop {
            let mut piece = vec![0; PIECE];
            let read = source.read(&mut piece).await;
            let (piece, outcome) = match read {
                Ok(0) => (Piece::End, Some(Ok(()))),
                Ok(count) => {
                    piece.truncate(count);
                    (Piece::Bytes(piece), None)
                }
                Err(error) => (Piece::Failed(error.kind().into()), Some(Err(error))),
            };
            // Whoever no longer listens has an answer of its own.
            if self.sender.send(piece).await.is_err() {
                return Ok(());
            }
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    /// Says, from a thread, that this was all of it, or why it is not.
    pub(super) fn finish(mut self, outcome: io::Result<()>) {
        let outcome = outcome.and_then(|()| self.flush());
        let _ = self.sender.blocking_send(outcome.map_or_else(Piece::Failed, |()| Piece::End));
    }
}

impl Write for Sender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = Piece::Bytes(std::mem::take(&mut self.buffer));
        self.sender.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Where bytes come out.
pub(super) struct Receiver {
    pieces: mpsc::Receiver<Piece>,
    piece: Vec<u8>,
    taken: usize,
    ended: bool,
}

impl Receiver {
    fn next(&mut self, piece: Option<Piece>) -> io::Result<()> {
        match piece {
            Some(Piece::Bytes(bytes)) => (self.piece, self.taken) = (bytes, 0),
            Some(Piece::End) => self.ended = true,
            Some(Piece::Failed(error)) => return Err(error),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }

    fn is_used_up(&self) -> bool {
        self.taken == self.piece.len() && !self.ended
    }

    fn hand_out(&mut self, most: usize) -> &[u8] {
        let count = most.min(self.piece.len() - self.taken);
        self.taken += count;
        &self.piece[self.taken - count..self.taken]
    }
}

impl Read for Receiver {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.is_used_up() {
            let piece = self.pieces.blocking_recv();
            self.next(piece)?;
        }
        let taken = self.hand_out(buffer.len());
        buffer[..taken.len()].copy_from_slice(taken);
        Ok(taken.len())
    }
}

impl AsyncRead for Receiver {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.is_used_up() {
            let piece = ready!(self.pieces.poll_recv(context));
            self.next(piece)?;
        }
        let room = buffer.remaining();
        buffer.put_slice(self.hand_out(room));
        Poll::Ready(Ok(()))
    }
}
