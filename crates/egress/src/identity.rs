//! The identity of the session behind a listener, and its limits.

use std::{sync::Arc, time::Duration};

use base::ByteBudget;
use protocol::{SessionId, TurnId};
use store::Journal;

use crate::{dns::DnsSockets, live_policy::LivePolicy, proxy_credentials::ProxyCredentials};

/// Returns the running turn; called at the start of each attempt.
pub type TurnSource = Arc<dyn Fn() -> Option<TurnId> + Send + Sync>;

/// The session that a listener belongs to. Nothing that a client sends can change it.
pub struct EgressIdentity {
    /// The session.
    pub session: SessionId,
    /// The journal that records the attempts of the session.
    pub journal: Arc<dyn Journal>,
    /// The turn that is running, for the records.
    pub turn: TurnSource,
    /// The current policy of the session.
    pub policy: LivePolicy,
    /// The session CA and the credentials that the proxy injects.
    pub credentials: ProxyCredentials,
    /// The sockets of the DNS server of the session, if the policy enables DNS.
    pub dns: Option<DnsSockets>,
    /// The limits of the session.
    pub limits: EgressLimits,
    /// The bytes in memory that all connections of the session share.
    pub in_flight: ByteBudget,
}

/// The limits of one session at the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressLimits {
    /// Most open connections; further ones wait.
    pub connections: usize,
    /// Most concurrent name lookups; further ones wait.
    pub lookups: usize,
    /// Most bytes in the head of a request or response.
    pub head_bytes: usize,
    /// Most header lines of a request or response.
    pub header_lines: usize,
    /// Most time for a client to send a request head, a SOCKS greeting or a ClientHello.
    pub head_timeout: Duration,
    /// Most time for a name lookup.
    pub resolve_timeout: Duration,
    /// Most time to connect to one address.
    pub connect_timeout: Duration,
    /// Most time without traffic in either direction.
    pub idle_timeout: Duration,
    /// Window in which repeats of a denial are counted before they are recorded together.
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
