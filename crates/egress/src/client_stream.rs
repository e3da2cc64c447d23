//! The connection to a client: a reader that can peek, and a writer.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    time::timeout,
};

use crate::peek_reader::PeekReader;

/// Limits for reading the rest of a refused client's input.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
const DRAIN_BYTES: usize = 1 << 20;

/// A client connection with separate directions. As a stream it returns the peeked bytes first, so that TLS can run on it.
pub(crate) struct ClientStream<R, W> {
    pub(crate) source: PeekReader<R>,
    pub(crate) sink: W,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> ClientStream<R, W> {
    pub(crate) fn new((reader, sink): (R, W)) -> Self {
        Self { source: PeekReader::new(reader), sink }
    }

    /// Sends `bytes` and closes the connection in a way that lets the client read them.
    pub(crate) async fn send_and_close(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes).await?;
        self.sink.shutdown().await?;
        self.drain().await
    }

    /// Waits briefly for the client to close. Closing with unread input resets the connection, and the client could lose
    /// the response.
    pub(crate) async fn drain(&mut self) -> io::Result<()> {
        let _ = timeout(DRAIN_TIMEOUT, discard_input(&mut self.source)).await;
        Ok(())
    }
}

async fn discard_input(source: &mut PeekReader<impl AsyncRead + Unpin>) -> io::Result<()> {
    let mut left = DRAIN_BYTES;
    let mut scratch = vec![0; 8 << 10];
    while left > 0 {
        match source.read(&mut scratch).await? {
            0 => break,
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
}

impl<R: AsyncRead + Unpin, W: Unpin> AsyncRead for ClientStream<R, W> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().source.poll_read(context, into)
    }
}

impl<R: Unpin, W: AsyncWrite + Unpin> AsyncWrite for ClientStream<R, W> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().sink).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().sink).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().sink).poll_shutdown(context)
    }
}
