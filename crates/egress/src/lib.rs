//! The way out of a sandbox for everything that is not a model: a proxy that connects to what the policy lists.
//!
//! It serves each session's own listener, so the listener is the identity. One rule must stay true: nothing
//! is looked up and nobody is called before the policy said yes to the very name that is then called.
//!
//! Not here: models (`gateway`), what a policy means (`policy`), or who starts a session (`session`).

mod attachment;
mod attempt;
mod session_ca;
mod client_stream;
mod credential;
mod session_proxy;
mod environment;
mod connector;
mod sniffed_request;
mod http;
mod identity;
mod inject;
mod intercept;
mod internet;
mod live_policy;
mod dns;
mod proxy_credentials;
mod copy;
mod attempt_recorder;
mod refusal;
mod socks;
mod peek_reader;
mod tls;
mod totals;
mod tunnel;

use std::{
    io,
    sync::{Arc, OnceLock},
};

use policy::EffectivePolicy;
use totals::Counters;

pub use attachment::EgressAttachment;
pub use session_ca::{CERTIFICATES, SessionCa, SessionCaError, TrustStore};
pub use credential::EgressCredential;
pub use identity::{EgressIdentity, EgressLimits, TurnSource};
pub use internet::{Internet, SystemInternet};
pub use live_policy::LivePolicy;
pub use dns::DnsSockets;
pub use proxy_credentials::{CredentialSource, ProxyCredentials, ProxyCredentialsError, TrustSource};
pub use totals::EgressTotals;

/// The egress proxy of a host: serves the listeners of all its sessions.
#[derive(Clone)]
pub struct Egress {
    internet: Arc<dyn Internet>,
    counters: Arc<Counters>,
    trust: Option<TrustSource>,
    credentials: Option<CredentialSource>,
    /// What `trust` found out, once.
    trusted: Arc<OnceLock<TrustStore>>,
}

impl Egress {
    /// A proxy that serves nobody yet and reaches the world through `internet`.
    pub fn new(internet: Arc<dyn Internet>) -> Self {
        Self { internet, counters: Arc::default(), trust: None, credentials: None, trusted: Arc::default() }
    }

    /// With whom to trust where TLS is opened; without it no session can have that.
    #[must_use]
    pub fn with_trust(mut self, trust: TrustSource) -> Self {
        self.trust = Some(trust);
        self
    }

    /// With credentials that it may set in headers; without them no policy can ask for one.
    #[must_use]
    pub fn with_credentials(mut self, credentials: CredentialSource) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// What a new session is given: an authority where its policy has TLS opened, and the credentials it names.
    pub fn proxy_credentials(&self, policy: &EffectivePolicy) -> Result<ProxyCredentials, ProxyCredentialsError> {
        let mut outfit = ProxyCredentials::default();
        if !policy.net().intercept.is_empty() {
            outfit.authority = Some(Arc::new(SessionCa::new(self.trust()?)?));
        }
        let none: CredentialSource = Arc::new(|_| Err("the proxy was given none".to_owned()));
        outfit.with_credentials(policy, self.credentials.as_ref().unwrap_or(&none))
    }

    fn trust(&self) -> Result<TrustStore, ProxyCredentialsError> {
        if let Some(trust) = self.trusted.get() {
            return Ok(trust.clone());
        }
        let unknown = || Err(io::Error::other("the proxy was not told whom to trust"));
        let trust = self.trust.as_ref().map_or_else(unknown, |find| find()).map_err(ProxyCredentialsError::Trust)?;
        Ok(self.trusted.get_or_init(|| trust).clone())
    }

    /// Serves `listener` for the session `identity` until the attachment is closed or dropped.
    ///
    /// Must be called within a Tokio runtime. The listener may live in another network namespace.
    pub fn attach(&self, listener: std::net::TcpListener, identity: EgressIdentity) -> io::Result<EgressAttachment> {
        EgressAttachment::serve(listener, identity, self.internet.clone(), self.counters.clone())
    }

    /// What it did so far, over all sessions.
    pub fn totals(&self) -> EgressTotals {
        self.counters.read()
    }
}

impl Default for Egress {
    /// A proxy that reaches the world as this machine does.
    fn default() -> Self {
        Self::new(Arc::new(SystemInternet))
    }
}
