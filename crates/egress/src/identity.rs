//! Who asks: everything the proxy knows about the session behind a listener.

use std::{sync::Arc, time::Duration};

use protocol::{SessionId, TurnId};
use store::Journal;

use crate::{live_policy::LivePolicy, dns::DnsSockets, proxy_credentials::ProxyCredentials};

/// Tells which turn is running; asked at the start of each attempt.
pub type TurnSource = Arc<dyn Fn() -> Option<TurnId> + Send + Sync>;

/// The session a listener belongs to. Nothing a client sends can change it.
pub struct EgressIdentity {
    /// The session.
    pub session: SessionId,
    /// Where its attempts are recorded.
    pub journal: Arc<dyn Journal>,
    /// The turn that is running, for the records.
    pub turn: TurnSource,
    /// What it may reach, now.
    pub policy: LivePolicy,
    /// What it was given of the host.
    pub credentials: ProxyCredentials,
    /// Where it asks for names, if it does.
    pub dns: Option<DnsSockets>,
    /// What it may use of the proxy.
    pub limits: EgressLimits,
}

/// What one session may use of the proxy, and how long it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressLimits {
    /// Connections open at a time; further ones wait.
    pub connections: usize,
    /// Names looked up at a time; further ones wait.
    pub lookups: usize,
    /// Bytes of the head of a request or an answer.
    pub head_bytes: usize,
    /// Header lines of a request or an answer.
    pub header_lines: usize,
    /// How long a client may take to say what it wants: a head, a greeting, a ClientHello.
    pub head_timeout: Duration,
    /// How long a name may take to be looked up.
    pub resolve_timeout: Duration,
    /// How long one address may take to answer a call.
    pub connect_timeout: Duration,
    /// How long a connection may carry nothing, either way.
    pub idle_timeout: Duration,
    /// How long repeats of a denial are counted before they are recorded together.
    pub repeat_window: Duration,
}

impl Default for EgressLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            lookups: 16,
            head_bytes: 32 << 10,
            header_lines: 100,
            head_timeout: Duration::from_secs(10),
            resolve_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(15 * 60),
            repeat_window: Duration::from_secs(5),
        }
    }
}
