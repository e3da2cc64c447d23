//! The frames of a response, counted towards the session's budget of bytes in memory.
//!
//! The tee copies a response until it is stored, so every frame is reserved before it is read on. Without room the
//! upstream waits. The frames of a document are also queued for a client that may read slowly, and each of them keeps
//! its own bytes reserved until the client has it.

use std::time::Duration;

use base::{ByteBudget, ByteReservation};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};

use crate::upstream::{ResponseStream, UpstreamFailure};

/// A response whose bytes are reserved as they arrive.
struct BudgetedFrames {
    frames: ResponseStream,
    budget: ByteBudget,
    /// The bytes of the tee's copy.
    copied: ByteReservation,
    patience: Duration,
    queued: bool,
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

/// Returns `frames` within `budget`. A frame waits at most `patience` for room. `queued` says that frames wait for
/// the client.
pub(crate) fn within_budget(
    frames: ResponseStream,
    budget: &ByteBudget,
    patience: Duration,
    queued: bool,
) -> ResponseStream {
    let copied = budget.reservation();
    let frames = BudgetedFrames { frames, budget: budget.clone(), copied, patience, queued };
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
        self.copied.grow(bytes.len(), self.patience).await.map_err(UpstreamFailure::InFlightFull)?;
        if !self.queued {
            return Ok(bytes);
        }
        let mut reserved = self.budget.reservation();
        reserved.grow(bytes.len(), self.patience).await.map_err(UpstreamFailure::InFlightFull)?;
        Ok(Bytes::from_owner(BudgetedFrame { bytes, _reserved: reserved }))
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
        let mut response = within_budget(frames(3), &budget, Duration::ZERO, false);
        response.next().await.unwrap().unwrap();
        response.next().await.unwrap().unwrap();
        assert_eq!(budget.used(), 2_000);
        drop(response);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn queued_frame_counts_until_the_client_has_it() {
        let budget = ByteBudget::new(10_000);
        let mut response = within_budget(frames(1), &budget, Duration::ZERO, true);
        let frame = response.next().await.unwrap().unwrap();
        drop(response);
        assert_eq!((frame.len(), budget.used()), (1000, 1000));
        drop(frame);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn response_without_room_fails_after_the_patience() {
        let budget = ByteBudget::new(1_500);
        let mut response = within_budget(frames(2), &budget, Duration::from_millis(1), false);
        response.next().await.unwrap().unwrap();
        assert!(matches!(response.next().await, Some(Err(UpstreamFailure::InFlightFull(_)))));
        assert!(response.next().await.is_none());
        assert_eq!(budget.used(), 0);
    }
}
