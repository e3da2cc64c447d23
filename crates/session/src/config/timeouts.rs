//! Timeouts of a session. They limit waiting, never work.

use std::time::Duration;

/// Timeouts of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTimeouts {
    /// A permission request without an answer is refused after this time.
    pub permission: Duration,
    /// A question without an answer is rejected after this time.
    pub question: Duration,
    /// A turn without output and without model calls times out after this time.
    pub silence: Duration,
    /// An agent that was asked to stop is killed after this time.
    pub stop_grace: Duration,
    /// Longest time between the end of a process's output and its exit, in either order.
    pub exit_grace: Duration,
    /// Interval of the checks for free disk space while a turn or command runs.
    pub free_space_check: Duration,
    /// The end of a turn is recorded when the cost of its model calls is recorded, or after this time.
    pub billing: Duration,
}

impl Default for SessionTimeouts {
    fn default() -> Self {
        Self {
            permission: Duration::from_secs(15 * 60),
            question: Duration::from_secs(60 * 60),
            silence: Duration::from_secs(30 * 60),
            stop_grace: Duration::from_secs(5),
            exit_grace: Duration::from_millis(500),
            free_space_check: Duration::from_secs(2),
            billing: Duration::from_secs(1),
        }
    }
}
