//! How long a session waits for what. All of it is silence, none of it is work.

use std::time::Duration;

/// How long a session waits for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTimeouts {
    /// A permission nobody answered is refused after this.
    pub permission: Duration,
    /// A question nobody answered is rejected after this.
    pub question: Duration,
    /// A turn in which nothing happens at all, no output and no model call, ends after this.
    pub silence: Duration,
    /// An agent that was asked to stop is ended after this.
    pub stop_grace: Duration,
    /// Between the two signs of a process going away: the end of its output and its exit.
    pub exit_grace: Duration,
    /// A turn that is over is told so when the cost of its model calls is on record, or after this.
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
            billing: Duration::from_secs(1),
        }
    }
}
