//! Waiting in tests.
//!
//! A test waits for a condition, never for a fixed time. The exceptions have names: [`pause`] chooses the moment of an
//! interruption, [`hang`] keeps a victim process alive, and [`poll_pause`] is for loops with their own deadline.

use std::time::Duration;

/// The longest time that a test waits for one condition.
pub const WAIT_LIMIT: Duration = Duration::from_secs(30);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until `condition` holds, and panics with `what` when it does not within [`WAIT_LIMIT`].
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(becomes_true(condition), "{what}: still false after {WAIT_LIMIT:?}");
}

/// Returns whether `condition` holds within [`WAIT_LIMIT`].
///
/// Counts attempts instead of seconds, because on a busy machine time also passes while this process does not run.
pub fn becomes_true(mut condition: impl FnMut() -> bool) -> bool {
    for _ in 0..attempts() {
        if condition() {
            return true;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    false
}

/// Waits until `condition` holds, without blocking the runtime; panics with `what` when it does not.
pub async fn wait_until_async<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    for _ in 0..attempts() {
        if condition().await {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    assert!(condition().await, "{what}: still false after {WAIT_LIMIT:?}");
}

/// Blocks for `time`: a random moment before a kill, never a wait for something to happen.
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Waits for `time` like [`pause`], without blocking the runtime.
pub async fn pause_async(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits a moment between two checks of a condition that has its own deadline.
pub fn poll_pause() {
    std::thread::sleep(POLL_INTERVAL);
}

/// Waits a moment like [`poll_pause`], without blocking the runtime.
pub async fn poll_pause_async() {
    tokio::time::sleep(POLL_INTERVAL).await;
}

/// Keeps this process alive until it is killed, at most for `time`.
pub fn hang(time: Duration) {
    std::thread::sleep(time);
}

fn attempts() -> u128 {
    WAIT_LIMIT.as_millis() / POLL_INTERVAL.as_millis()
}
