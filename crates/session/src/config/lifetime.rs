//! How long sessions and their agents live.

use std::time::Duration;

/// How long sessions and their agents live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionLifetime {
    /// An agent without a turn is stopped after this time; its session sleeps. `None` keeps it running.
    pub idle_stop: Option<Duration>,
    /// A session ends this long after its creation. `None` lets it live.
    pub ttl: Option<Duration>,
    /// Whether a session goes on after its agent has crashed, so that the next message starts the agent again.
    pub survives_crashes: bool,
}
