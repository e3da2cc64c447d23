//! A client: bytes from it, with those read ahead, and bytes to it.

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

use crate::peek_reader::Source;

/// How long, and how much, is still read from a client that was refused.
const FAREWELL: Duration = Duration::from_secs(2);
const FAREWELL_BYTES: usize = 1 << 20;

/// A client, its two directions apart. TLS can be spoken on it: what was read ahead is read first.
pub(crate) struct Client<R, W> {
    pub(crate) source: Source<R>,
    pub(crate) sink: W,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Client<R, W> {
    pub(crate) fn new((reader, sink): (R, W)) -> Self {
        Self { source: Source::new(reader), sink }
    }

    /// Says one last thing, and closes so that the client can read it.
    pub(crate) async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes).await?;
        self.sink.shutdown().await?;
        self.farewell().await
    }

    /// Waits a little for the client to close: closing on unread bytes resets the connection, and with it
    /// whatever the client has not read yet.
    pub(crate) async fn farewell(&mut self) -> io::Result<()> {
        let _ = timeout(FAREWELL, drain(&mut self.source)).await;
        Ok(())
    }
}

async fn drain(source: &mut Source<impl AsyncRead + Unpin>) -> io::Result<()> {
    let mut left = FAREWELL_BYTES;
    let mut scratch = vec![0; 8 << 10];
    while left > 0 {
        match source.read(&mut scratch).await? {
            0 => break,
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
}

impl<R: AsyncRead + Unpin, W: Unpin> AsyncRead for Client<R, W> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().source.poll_read(context, into)
    }
}

impl<R: Unpin, W: AsyncWrite + Unpin> AsyncWrite for Client<R, W> {
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
