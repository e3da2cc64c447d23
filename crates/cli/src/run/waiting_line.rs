//! A line on the terminal that shows how long a wait already takes.
//!
//! The line appears after a second and vanishes with the wait. A pipe or a file never receives it.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, interval_at};

use crate::output;

/// Shorter waits show nothing.
const DELAY: Duration = Duration::from_secs(1);
/// Updates in a second.
const RATE: u32 = 4;
const FRAMES: [char; 8] = ['⣾', '⣽', '⣻', '⢿', '⡿', '⣟', '⣯', '⣷'];

/// Waits for `work`. After a second, shows `what` and the elapsed time if standard error is a terminal.
pub(super) async fn show_during<T>(what: &str, work: impl Future<Output = T>) -> T {
    if !output::stderr_is_terminal() {
        return work.await;
    }
    let mut work = pin!(work);
    let mut line = WaitingLine { updates: 0 };
    let mut ticks = interval_at(Instant::now() + DELAY, Duration::from_secs(1) / RATE);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = ticks.tick() => line.update(what),
        }
    }
}

/// The line on the screen. Dropping it clears the line, also when the wait is cancelled.
struct WaitingLine {
    updates: u32,
}

impl WaitingLine {
    fn update(&mut self, what: &str) {
        let frame = FRAMES.iter().cycle().nth(self.updates as usize % FRAMES.len()).unwrap_or(&' ');
        let seconds = DELAY.as_secs() + u64::from(self.updates / RATE);
        output::replace_line(&format!("{frame} {what} · {seconds} s"));
        self.updates += 1;
    }
}

impl Drop for WaitingLine {
    fn drop(&mut self) {
        if self.updates > 0 {
            output::replace_line("");
        }
    }
}
