//! A budget of bytes in memory that all connections of a session share.
//!
//! Bytes are reserved before they are read and returned when they are dropped. Reserving is one atomic operation while
//! the budget has room; without room, the caller waits for a limited time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::{HostLimit, LimitHits};

/// A number of bytes that several owners may hold together. Clones share the same bytes.
#[derive(Debug, Clone)]
pub struct ByteBudget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    capacity: usize,
    free: Semaphore,
}

/// The budget had no room for a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session holds {used} of {capacity} bytes in memory (limits.in_flight); {asked} more do not fit")]
pub struct BudgetFull {
    /// The bytes that were asked for.
    pub asked: usize,
    /// The bytes that all owners hold.
    pub used: usize,
    /// The bytes of the budget.
    pub capacity: usize,
}

impl ByteBudget {
    /// Returns a budget of `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(Semaphore::MAX_PERMITS);
        Self(Arc::new(BudgetState { capacity, free: Semaphore::new(capacity) }))
    }

    /// Returns the bytes of the budget.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Returns the bytes that all owners hold.
    pub fn used(&self) -> usize {
        self.0.capacity - self.0.free.available_permits()
    }

    /// Returns a reservation of no bytes, which can grow.
    pub fn reservation(&self) -> ByteReservation {
        ByteReservation { budget: self.clone(), bytes: 0 }
    }

    fn full(&self, asked: usize) -> BudgetFull {
        LimitHits::count(HostLimit::InFlight);
        BudgetFull { asked, used: self.used(), capacity: self.0.capacity }
    }
}

/// Bytes of a [`ByteBudget`], returned when dropped.
#[derive(Debug)]
pub struct ByteReservation {
    budget: ByteBudget,
    bytes: usize,
}

impl ByteReservation {
    /// Returns the reserved bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves `more` bytes if the budget has room now, and returns whether it had.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let Ok(permits) = u32::try_from(more) else { return false };
        let Ok(permit) = self.budget.0.free.try_acquire_many(permits) else { return false };
        permit.forget();
        self.bytes += more;
        true
    }

    /// Reserves `more` bytes, and waits at most `patience` for room. A dropped future reserves nothing.
    pub async fn grow(&mut self, more: usize, patience: Duration) -> Result<(), BudgetFull> {
        if self.try_grow(more) {
            return Ok(());
        }
        // A reservation above the whole budget would wait in vain.
        let permits = u32::try_from(more).ok().filter(|_| self.bytes + more <= self.budget.capacity());
        let Some(permits) = permits else { return Err(self.budget.full(more)) };
        match tokio::time::timeout(patience, self.budget.0.free.acquire_many(permits)).await {
            Ok(Ok(permit)) => permit.forget(),
            Ok(Err(_)) | Err(_) => return Err(self.budget.full(more)),
        }
        self.bytes += more;
        Ok(())
    }

    /// Returns all bytes above `bytes` to the budget.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.budget.0.free.add_permits(surplus);
        self.bytes -= surplus;
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn reservations_share_the_budget_and_return_their_bytes() {
        let budget = ByteBudget::new(100);
        let (mut one, mut other) = (budget.reservation(), budget.reservation());
        assert!(one.try_grow(60) && !other.try_grow(41) && other.try_grow(40));
        assert_eq!(budget.used(), 100);
        one.shrink_to(10);
        assert_eq!((one.bytes(), budget.used()), (10, 50));
        drop((one, other));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn full_budget_is_waited_for_until_the_end_of_patience() {
        runtime().block_on(async {
            let budget = ByteBudget::new(100);
            let (mut one, mut other) = (budget.reservation(), budget.reservation());
            assert!(one.try_grow(60));
            let full = other.grow(50, Duration::from_millis(1)).await.unwrap_err();
            assert_eq!(full, BudgetFull { asked: 50, used: 60, capacity: 100 });
            let (grown, ()) = tokio::join!(other.grow(50, Duration::from_secs(60)), async { drop(one) });
            assert_eq!((grown, budget.used()), (Ok(()), 50));
        });
    }

    #[test]
    fn reservation_above_the_whole_budget_is_refused_at_once() {
        runtime().block_on(async {
            let mut reservation = ByteBudget::new(100).reservation();
            assert!(reservation.grow(101, Duration::MAX).await.is_err());
        });
    }
}
