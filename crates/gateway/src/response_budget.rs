//! The frames of a response, counted towards the session's budget of bytes in memory.
//!
//! The tee copies a response until it is stored, so every frame is reserved before it is read on. Without room the
//! upstream waits. The frames of a document are also queued for a client that may read slowly, and each of them keeps
//! its own bytes reserved until the client has it.
//!
//! A response that nobody reads never waits for room: it would keep its bytes from the calls that a client waits for.

use std::time::Duration;

use base::{ByteBudget, ByteReservation, HostLimit, LimitHits};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use crate::upstream::{ResponseStream, UpstreamFailure};

/// A response whose bytes are reserved as they arrive.
struct BudgetedFrames {
    frames: ResponseStream,
    budget: ByteBudget,
    /// The bytes of the tee's copy.
    copied: ByteReservation,
    patience: Duration,
    queued: bool,
    client_left: CancellationToken,
}

/// A frame with its reservation.
struct BudgetedFrame {
    bytes: Bytes,
    _reserved: ByteReservation,
}

impl AsRef<[u8]> for BudgetedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns `frames` within `budget`. A frame waits at most `patience` for room, and not at all after `client_left`.
/// `queued` says that frames wait for the client.
pub(crate) fn within_budget(
    frames: ResponseStream,
    budget: &ByteBudget,
    patience: Duration,
    queued: bool,
    client_left: CancellationToken,
) -> ResponseStream {
    let copied = budget.reservation();
    let frames = BudgetedFrames { frames, budget: budget.clone(), copied, patience, queued, client_left };
    Box::pin(stream::unfold(Some(frames), |frames| async {
        let mut frames = frames?;
        match frames.next().await? {
            Ok(bytes) => Some((Ok(bytes), Some(frames))),
            Err(failure) => Some((Err(failure), None)),
        }
    }))
}

impl BudgetedFrames {
    async fn next(&mut self) -> Option<Result<Bytes, UpstreamFailure>> {
        match self.frames.next().await? {
            Ok(bytes) => Some(self.reserve(bytes).await),
            Err(failure) => Some(Err(failure)),
        }
    }

    async fn reserve(&mut self, bytes: Bytes) -> Result<Bytes, UpstreamFailure> {
        grow(&mut self.copied, bytes.len(), self.patience, &self.client_left).await?;
        if !self.queued {
            return Ok(bytes);
        }
        let mut reserved = self.budget.reservation();
        grow(&mut reserved, bytes.len(), self.patience, &self.client_left).await?;
        Ok(Bytes::from_owner(BudgetedFrame { bytes, _reserved: reserved }))
    }
}

/// Reserves `more` bytes. Waits for room at most `patience`, and only while the client is there.
async fn grow(
    reservation: &mut ByteReservation,
    more: usize,
    patience: Duration,
    client_left: &CancellationToken,
) -> Result<(), UpstreamFailure> {
    if reservation.try_grow(more) {
        return Ok(());
    }
    tokio::select! {
        biased;
        () = client_left.cancelled() => {
            LimitHits::count(HostLimit::InFlight);
            Err(UpstreamFailure::AbandonedWithoutRoom)
        }
        grown = reservation.grow(more, patience) => grown.map_err(UpstreamFailure::InFlightFull),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(count: usize) -> ResponseStream {
        Box::pin(stream::iter((0..count).map(|_| Ok(Bytes::from(vec![b'x'; 1000])))))
    }

    #[tokio::test]
    async fn copy_counts_until_the_response_is_dropped() {
        let budget = ByteBudget::new(10_000);
        let mut response = within_budget(frames(3), &budget, Duration::ZERO, false, CancellationToken::new());
        response.next().await.unwrap().unwrap();
        response.next().await.unwrap().unwrap();
        assert_eq!(budget.used(), 2_000);
        drop(response);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn queued_frame_counts_until_the_client_has_it() {
        let budget = ByteBudget::new(10_000);
        let mut response = within_budget(frames(1), &budget, Duration::ZERO, true, CancellationToken::new());
        let frame = response.next().await.unwrap().unwrap();
        drop(response);
        assert_eq!((frame.len(), budget.used()), (1000, 1000));
        drop(frame);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn response_without_room_fails_after_the_patience() {
        let budget = ByteBudget::new(1_500);
        let mut response = within_budget(frames(2), &budget, Duration::from_millis(1), false, CancellationToken::new());
        response.next().await.unwrap().unwrap();
        assert!(matches!(response.next().await, Some(Err(UpstreamFailure::InFlightFull(_)))));
        assert!(response.next().await.is_none());
        assert_eq!(budget.used(), 0);
    }
    #[tokio::test]
    async fn response_that_waits_for_room_ends_when_the_client_leaves() {
        let budget = ByteBudget::new(2_000);
        let mut other = budget.reservation();
        assert!(other.try_grow(500));
        let client_left = CancellationToken::new();
        let mut response = within_budget(frames(2), &budget, Duration::MAX, false, client_left.clone());
        response.next().await.unwrap().unwrap();
        assert!(futures_util::poll!(response.next()).is_pending());
        client_left.cancel();
        assert!(matches!(response.next().await, Some(Err(UpstreamFailure::AbandonedWithoutRoom))));
        assert_eq!(budget.used(), 500);
    }

    #[tokio::test]
    async fn response_with_room_is_read_to_its_end_after_the_client_left() {
        let client_left = CancellationToken::new();
        client_left.cancel();
        let response = within_budget(frames(3), &ByteBudget::new(3_000), Duration::ZERO, false, client_left);
        assert!(response.collect::<Vec<_>>().await.iter().all(Result::is_ok));
    }
}
