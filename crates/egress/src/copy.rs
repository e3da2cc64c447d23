//! Copying bytes between two connections: counted, and stopped when the policy changes or the connection is idle.

use std::io;

use base::ByteReservation;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, sleep_until},
};

use crate::{
    attempt::ConnectionBytes,
    connector::{AccessQuery, Connector},
    peek_reader::PeekReader,
    refusal::Refusal,
};

/// Buffers start small, because most connections are idle, and grow while reads fill them.
const BUFFER_MIN: usize = 16 << 10;
const BUFFER_MAX: usize = 128 << 10;

/// The direction of traffic.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    /// From the sandbox to the host.
    Outbound,
    /// From the host to the sandbox.
    Inbound,
}

impl Direction {
    pub(crate) fn count(self, traffic: &ConnectionBytes, bytes: usize) {
        match self {
            Self::Outbound => traffic.add_sent(bytes),
            Self::Inbound => traffic.add_received(bytes),
        }
    }
}

/// A buffer for copying that grows while the session has memory left.
pub(crate) struct CopyBuffer {
    bytes: Vec<u8>,
    reserved: Option<ByteReservation>,
}

impl CopyBuffer {
    /// Returns a small buffer for a connection.
    pub(crate) fn new(traffic: &ConnectionBytes) -> Self {
        Self { bytes: vec![0; BUFFER_MIN], reserved: traffic.buffer_reservation() }
    }

    /// Reads at most `limit` bytes and returns them; empty when the peer has closed.
    pub(crate) async fn read(
        &mut self,
        source: &mut PeekReader<impl AsyncRead + Unpin>,
        limit: u64,
    ) -> io::Result<&[u8]> {
        let room = self.bytes.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        let count = source.read(&mut self.bytes[..room]).await?;
        let is_full = count == self.bytes.len() && count < BUFFER_MAX;
        if is_full && self.reserved.as_mut().is_some_and(|reserved| reserved.try_grow(count)) {
            self.bytes.resize(count * 2, 0);
        }
        Ok(&self.bytes[..count])
    }
}

/// Copies until the source ends, then shuts the sink down.
pub(crate) async fn copy_one_way(
    source: &mut PeekReader<impl AsyncRead + Unpin>,
    sink: &mut (impl AsyncWrite + Unpin),
    traffic: &ConnectionBytes,
    way: Direction,
) -> io::Result<()> {
    let mut buffer = CopyBuffer::new(traffic);
    loop {
        let bytes = buffer.read(source, u64::MAX).await?;
        if bytes.is_empty() {
            return sink.shutdown().await;
        }
        sink.write_all(bytes).await?;
        way.count(traffic, bytes.len());
    }
}

/// The reason why the proxy closed a connection.
pub(crate) enum CutReason {
    /// A new policy does not allow the connection.
    Policy(Refusal),
    /// No bytes were copied for the idle timeout.
    Idle,
}

impl Connector {
    /// Runs `work` until it ends, the policy no longer allows `query`, or the connection is idle for too long.
    pub(crate) async fn guard<T>(
        &self,
        query: &AccessQuery,
        traffic: &ConnectionBytes,
        work: impl Future<Output = T>,
    ) -> Result<T, CutReason> {
        let mut changes = self.policy.changes();
        tokio::pin!(work);
        let mut seen = traffic.total();
        let mut deadline = Instant::now() + self.limits.idle_timeout;
        loop {
            // Decided after subscribing, so that no policy change is missed in between.
            if let Err(refusal) = self.decide(query) {
                return Err(CutReason::Policy(refusal));
            }
            tokio::select! {
                done = &mut work => return Ok(done),
                Ok(()) = changes.changed() => {}
                () = sleep_until(deadline) => {
                    let now = traffic.total();
                    if now == seen {
                        return Err(CutReason::Idle);
                    }
                    seen = now;
                    deadline = Instant::now() + self.limits.idle_timeout;
                }
            }
        }
    }
}
