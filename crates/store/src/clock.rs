//! The clock as a port, so that tests can set the time.

use jiff::Timestamp;

/// The source of the time of records.
pub trait Clock: Send + Sync {
    /// Returns the current time in UTC.
    fn now(&self) -> Timestamp;
}

/// The system clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
