//! The way out of a sandbox for everything that is not a model: a proxy that connects to what the policy lists.
//!
//! It serves each session's own listener, so the listener is the identity. One rule must stay true: nothing
//! is looked up and nobody is called before the policy said yes to the very name that is then called.
//!
//! Not here: models (`gateway`), what a policy means (`policy`), or who starts a session (`session`).

mod attachment;
mod attempt;
mod authority;
mod client;
mod desk;
mod environment;
mod gate;
mod http;
mod identity;
mod intercept;
mod internet;
mod live;
mod pump;
mod recorder;
mod refusal;
mod socks;
mod source;
mod tls;
mod totals;
mod tunnel;

use std::{
    io,
    sync::{Arc, OnceLock},
};

use policy::Effective;
use totals::Counters;

pub use attachment::Attachment;
pub use authority::{Authority, AuthorityError, CERTIFICATES, Trust, TrustSource};
pub use environment::{proxy_environment, trust_environment};
pub use identity::{Identity, Limits, TurnSource};
pub use internet::{Internet, SystemInternet};
pub use live::LivePolicy;
pub use totals::Totals;

/// The egress proxy of a host: serves the listeners of all its sessions.
#[derive(Clone)]
pub struct Egress {
    internet: Arc<dyn Internet>,
    counters: Arc<Counters>,
    trust: Option<TrustSource>,
    /// What `trust` found out, once.
    trusted: Arc<OnceLock<Trust>>,
}

impl Egress {
    /// A proxy that serves nobody yet and reaches the world through `internet`.
    pub fn new(internet: Arc<dyn Internet>) -> Self {
        Self { internet, counters: Arc::default(), trust: None, trusted: Arc::default() }
    }

    /// With whom to trust where TLS is opened; without it no session can have that.
    #[must_use]
    pub fn trusting(mut self, trust: TrustSource) -> Self {
        self.trust = Some(trust);
        self
    }

    /// The authority of a new session; none where its policy has no TLS opened.
    pub fn authority(&self, policy: &Effective) -> Result<Option<Arc<Authority>>, AuthorityError> {
        if policy.net().intercept.is_empty() {
            return Ok(None);
        }
        if self.trusted.get().is_none() {
            let unknown = || Err(io::Error::other("the proxy was not told whom to trust"));
            let trust = self.trust.as_ref().map_or_else(unknown, |find| find()).map_err(AuthorityError::Trust)?;
            let _ = self.trusted.set(trust);
        }
        let trust = self.trusted.get().cloned();
        trust.map(|trust| Authority::new(trust).map(Arc::new)).transpose()
    }

    /// Serves `listener` for the session `identity` until the attachment is closed or dropped.
    ///
    /// Must be called within a Tokio runtime. The listener may live in another network namespace.
    pub fn attach(&self, listener: std::net::TcpListener, identity: Identity) -> io::Result<Attachment> {
        Attachment::serve(listener, identity, self.internet.clone(), self.counters.clone())
    }

    /// What it did so far, over all sessions.
    pub fn totals(&self) -> Totals {
        self.counters.read()
    }
}

impl Default for Egress {
    /// A proxy that reaches the world as this machine does.
    fn default() -> Self {
        Self::new(Arc::new(SystemInternet))
    }
}
