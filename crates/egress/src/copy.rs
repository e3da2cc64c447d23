//! Bytes from one side to the other, fast, counted, and watched over.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, sleep_until},
};

use crate::{
    attempt::Traffic,
    connector::{Gate, Question},
    refusal::Refusal,
    peek_reader::Source,
};

/// A buffer begins small, as most connections are idle most of the time, and grows while it is being filled.
const BUFFER_MIN: usize = 16 << 10;
const BUFFER_MAX: usize = 128 << 10;

/// Which way bytes go.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// Out of the sandbox.
    Out,
    /// Into it.
    In,
}

impl Way {
    pub(crate) fn count(self, traffic: &Traffic, bytes: usize) {
        match self {
            Self::Out => traffic.add_sent(bytes),
            Self::In => traffic.add_received(bytes),
        }
    }
}

/// A buffer for copying.
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(vec![0; BUFFER_MIN])
    }

    /// Reads at most `limit` bytes; nothing means that the peer has closed.
    pub(crate) async fn read(&mut self, source: &mut Source<impl AsyncRead + Unpin>, limit: u64) -> io::Result<&[u8]> {
        let room = self.0.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        let count = source.read(&mut self.0[..room]).await?;
        if count == self.0.len() && count < BUFFER_MAX {
            self.0.resize(count * 2, 0);
        }
        Ok(&self.0[..count])
    }
}

/// Copies until the source ends, then says so to the sink.
pub(crate) async fn one_way(
    source: &mut Source<impl AsyncRead + Unpin>,
    sink: &mut (impl AsyncWrite + Unpin),
    traffic: &Traffic,
    way: Way,
) -> io::Result<()> {
    let mut buffer = Buffer::new();
    loop {
        let bytes = buffer.read(source, u64::MAX).await?;
        if bytes.is_empty() {
            return sink.shutdown().await;
        }
        sink.write_all(bytes).await?;
        way.count(traffic, bytes.len());
    }
}

/// Why a connection ended before both sides had closed it.
pub(crate) enum Cut {
    /// The policy was exchanged for one that does not allow it.
    Policy(Refusal),
    /// Nothing went through for too long.
    Idle,
}

impl Gate {
    /// Runs `work` for as long as the policy allows what was asked and bytes go through.
    pub(crate) async fn guard<T>(
        &self,
        question: &Question,
        traffic: &Traffic,
        work: impl Future<Output = T>,
    ) -> Result<T, Cut> {
        let mut changes = self.policy.changes();
        tokio::pin!(work);
        let mut seen = traffic.total();
        let mut deadline = Instant::now() + self.limits.idle_timeout;
        loop {
            // Asked after subscribing, so that no exchange falls between the decision and the watch.
            if let Err(refusal) = self.decide(question) {
                return Err(Cut::Policy(refusal));
            }
            tokio::select! {
                done = &mut work => return Ok(done),
                Ok(()) = changes.changed() => {}
                () = sleep_until(deadline) => {
                    let now = traffic.total();
                    if now == seen {
                        return Err(Cut::Idle);
                    }
                    seen = now;
                    deadline = Instant::now() + self.limits.idle_timeout;
                }
            }
        }
    }
}
