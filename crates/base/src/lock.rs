//! A mutex lock that ignores poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also after a thread panicked while it held the lock.
///
/// Code that holds one of our locks keeps the guarded value consistent at every step, so a panic elsewhere is not a
/// reason to stop recording.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
