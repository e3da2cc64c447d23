//! The body of a request, read and decompressed within the session's budget of bytes in memory.
//!
//! Every allocated byte is reserved before it is allocated, and returned to the budget when the last copy of the body
//! is dropped. A client that stops sending is cut off, so that it cannot hold its part of the budget.

use std::time::Duration;

use base::{BudgetFull, ByteBudget, ByteReservation, HostLimit, LimitHits};
use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::{
    coding::{Coding, PackedBody, UnpackError},
    identity::GatewayLimits,
    refusal::CallRefusal,
};

/// A body up to this length is allocated as a whole if its length is known. Bodies of agents are rarely longer.
const WHOLE_BYTES: usize = 256 << 10;
/// The first allocation for a body of unknown length.
const FIRST_BYTES: usize = 16 << 10;
/// The largest step by which an allocation grows ahead of the data.
const MAX_STEP: usize = 4 << 20;

/// The limits on one request body.
#[derive(Debug, Clone, Copy)]
struct BodyLimits {
    bytes: usize,
    idle: Duration,
    total: Duration,
}

impl BodyLimits {
    fn new(limits: &GatewayLimits, budget: &ByteBudget) -> Self {
        // A body larger than the whole budget could never be held.
        let bytes = limits.request_bytes.min(budget.capacity());
        Self { bytes, idle: limits.body_idle, total: limits.body_total }
    }

    fn too_large(self) -> CallRefusal {
        CallRefusal::BodyTooLarge { limit: self.bytes }
    }
}

/// Reads a request body and decompresses it. The limit on its length applies to both forms.
pub(crate) async fn read<B: Body<Data = Bytes> + Unpin>(
    body: B,
    coding: Option<Coding>,
    limits: &GatewayLimits,
    budget: &ByteBudget,
) -> Result<Bytes, CallRefusal> {
    let limits = BodyLimits::new(limits, budget);
    let body = collect(body, limits, budget).await?;
    match coding {
        Some(coding) => unpack(coding, body, limits, budget).await,
        None => Ok(body),
    }
}

async fn collect<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    limits: BodyLimits,
    budget: &ByteBudget,
) -> Result<Bytes, CallRefusal> {
    // A content length above the limit is refused before anything is read.
    let hint = body.size_hint();
    if hint.lower() > limits.bytes as u64 {
        return Err(limits.too_large());
    }
    let expected = hint.exact().and_then(|length| usize::try_from(length).ok());
    let mut collected = BudgetedBytes::new(budget);
    let deadline = Instant::now() + limits.total;
    loop {
        let now = Instant::now();
        // Checked here as well, because a timeout does not interrupt frames that have arrived.
        if now >= deadline {
            return Err(too_slow(limits, false));
        }
        let idle = now + limits.idle;
        // The timer is registered only if the next frame has not arrived yet.
        let frame = match timeout_at(idle.min(deadline), body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(CallRefusal::BodyCut),
            Ok(None) => return Ok(collected.freeze()),
            Err(_) => return Err(too_slow(limits, idle < deadline)),
        };
        let Ok(bytes) = frame.into_data() else { continue };
        if collected.bytes.len() + bytes.len() > limits.bytes {
            return Err(limits.too_large());
        }
        collected.make_room(bytes.len(), expected, limits).await?;
        collected.bytes.extend_from_slice(&bytes);
    }
}

fn too_slow(limits: BodyLimits, idle: bool) -> CallRefusal {
    if idle {
        LimitHits::count(HostLimit::BodyIdle);
        CallRefusal::BodyIdle(limits.idle)
    } else {
        LimitHits::count(HostLimit::BodyTotal);
        CallRefusal::BodySlow(limits.total)
    }
}

/// Decompresses a body step by step. Each step fills the reserved bytes, on a thread that serves no connections.
async fn unpack(coding: Coding, packed: Bytes, limits: BodyLimits, budget: &ByteBudget) -> Result<Bytes, CallRefusal> {
    let mut window = budget.reservation();
    window.grow(coding.window_bytes().min(budget.capacity()), limits.idle).await?;
    let mut plain = BudgetedBytes::new(budget);
    let mut packed = PackedBody::new(coding, packed);
    loop {
        let more = plain.bytes.len().clamp(FIRST_BYTES, MAX_STEP).min(limits.bytes - plain.bytes.len());
        plain.make_room(more, None, limits).await?;
        let step = tokio::task::spawn_blocking(move || {
            let room = plain.reserved.bytes();
            let ended = packed.fill(&mut plain.bytes, room);
            (packed, plain, ended)
        });
        let Ok((packed_rest, filled, ended)) = step.await else { return Err(CallRefusal::BodyCut) };
        (packed, plain) = (packed_rest, filled);
        match ended {
            Ok(true) => return Ok(plain.freeze()),
            Ok(false) if plain.bytes.len() >= limits.bytes => return Err(limits.too_large()),
            Ok(false) => {}
            Err(UnpackError::Broken(coding)) => {
                return Err(CallRefusal::BodyInvalid(format!("the data is not valid {}", coding.name())));
            }
            Err(UnpackError::Cut) => return Err(CallRefusal::BodyCut),
        }
    }
}

/// Bytes in memory that are reserved in a budget.
struct BudgetedBytes {
    bytes: Vec<u8>,
    reserved: ByteReservation,
    /// How long it has waited for room. The sum is limited, because bodies that each hold a part of a full budget would
    /// otherwise wait for each other again and again.
    waited: Duration,
}

impl BudgetedBytes {
    fn new(budget: &ByteBudget) -> Self {
        Self { bytes: Vec::new(), reserved: budget.reservation(), waited: Duration::ZERO }
    }

    /// Reserves and allocates room for `more` bytes. `expected` is the length of the whole body, if it is known.
    async fn make_room(&mut self, more: usize, expected: Option<usize>, limits: BodyLimits) -> Result<(), BudgetFull> {
        let (held, needed) = (self.reserved.bytes(), self.bytes.len() + more);
        if needed <= held {
            return Ok(());
        }
        let first = expected.unwrap_or(FIRST_BYTES).min(WHOLE_BYTES);
        let ahead = first.max(held.saturating_mul(2).min(held + MAX_STEP));
        let wanted = ahead.min(expected.unwrap_or(limits.bytes)).max(needed);
        if !self.reserved.try_grow(wanted - held) {
            // Little room is left, so only the bytes that have arrived are reserved.
            let started = Instant::now();
            self.reserved.grow(needed - held, limits.idle.saturating_sub(self.waited)).await?;
            self.waited += started.elapsed();
        }
        self.bytes.reserve_exact(self.reserved.bytes() - self.bytes.len());
        Ok(())
    }

    fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for BudgetedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io::Write as _;

    use futures_util::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;

    fn limits() -> GatewayLimits {
        GatewayLimits { request_bytes: 1 << 20, body_idle: Duration::from_millis(5), ..GatewayLimits::default() }
    }

    async fn check(
        body: impl Body<Data = Bytes> + Unpin,
        coding: Option<Coding>,
        budget: &ByteBudget,
    ) -> Result<Bytes, CallRefusal> {
        read(body, coding, &limits(), budget).await
    }

    #[tokio::test]
    async fn body_is_reserved_until_its_last_copy_is_dropped() {
        let budget = ByteBudget::new(100_000);
        let body = check(Full::new(Bytes::from(vec![b'x'; 60_000])), None, &budget).await.unwrap();
        assert_eq!((body.len(), budget.used()), (60_000, 60_000));
        let copy = body.clone();
        drop(body);
        assert_eq!(budget.used(), 60_000);
        drop(copy);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn tiny_chunks_cost_their_bytes_and_no_more() {
        let chunk = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")));
        let body = StreamBody::new(stream::iter((0..50_000).map(move |_| chunk())));
        let budget = ByteBudget::new(200_000);
        let body = check(Box::pin(body), None, &budget).await.unwrap();
        assert!(body.len() == 50_000 && budget.used() <= 2 * 50_000, "{} bytes are reserved", budget.used());
    }

    #[tokio::test]
    async fn body_that_stalls_is_refused() {
        let started = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{")))]);
        let budget = ByteBudget::new(100_000);
        let stalled = check(Box::pin(StreamBody::new(started.chain(stream::pending()))), None, &budget).await;
        assert!(matches!(stalled, Err(CallRefusal::BodyIdle(_))), "{stalled:?}");
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn body_without_end_is_refused_at_the_total_time() {
        let endless = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::new())));
        let limits = GatewayLimits { body_total: Duration::from_millis(5), ..limits() };
        let refused = read(Box::pin(StreamBody::new(endless)), None, &limits, &ByteBudget::new(1000)).await;
        assert!(matches!(refused, Err(CallRefusal::BodySlow(_))), "{refused:?}");
    }

    #[tokio::test]
    async fn body_waits_for_room_and_is_refused_without_it() {
        let budget = ByteBudget::new(100_000);
        let mut other = budget.reservation();
        assert!(other.try_grow(90_000));
        let full = check(Full::new(Bytes::from(vec![b'x'; 20_000])), None, &budget).await;
        assert!(matches!(full, Err(CallRefusal::InFlightFull(_))), "{full:?}");
        drop(other);
        assert!(check(Full::new(Bytes::from(vec![b'x'; 20_000])), None, &budget).await.is_ok());
        let too_large = check(Full::new(Bytes::from(vec![b'x'; 100_001])), None, &budget).await;
        assert!(matches!(too_large, Err(CallRefusal::BodyTooLarge { limit: 100_000 })), "{too_large:?}");
    }

    #[tokio::test]
    async fn compression_bomb_stays_within_the_budget() {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        writer.write_all(&vec![0; 4 << 20]).unwrap();
        let bomb = Bytes::from(writer.finish().unwrap());
        let budget = ByteBudget::new(3 << 20);
        let refused = check(Full::new(bomb), Some(Coding::Gzip), &budget).await;
        assert!(matches!(refused, Err(CallRefusal::BodyTooLarge { .. })), "{refused:?}");
        assert_eq!(budget.used(), 0);
        let small = zstd::encode_all(&vec![b'a'; 300_000][..], 1).unwrap();
        let budget = ByteBudget::new(32 << 20);
        let plain = check(Full::new(Bytes::from(small)), Some(Coding::Zstd), &budget).await.unwrap();
        assert_eq!(plain, vec![b'a'; 300_000]);
    }
}
