//! A lock that outlives a panic elsewhere.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. Whoever holds one of our locks leaves what it guards whole at every step, so a panic
/// of another thread is no reason to stop recording.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
