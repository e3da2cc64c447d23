//! The egress proxy: connects a sandbox to the hosts that its policy allows.
//!
//! Each session has its own listener, so the listener identifies the session. Invariant: the proxy looks up a name
//! and connects to it only after the policy allowed exactly that name.
//!
//! Not here: model calls (`gateway`), policy evaluation (`policy`), session start (`session`).

mod attachment;
mod attempt;
mod attempt_recorder;
mod client_stream;
mod connector;
mod copy;
mod credential;
mod dns;
mod environment;
mod http;
mod identity;
mod inject;
mod intercept;
mod internet;
mod live_policy;
mod peek_reader;
mod proxy_credentials;
mod refusal;
mod session_ca;
mod session_proxy;
mod sniffed_request;
mod socks;
mod tls;
mod totals;
mod tunnel;

use std::{
    io,
    sync::{Arc, OnceLock},
};

use policy::EffectivePolicy;
use totals::EgressCounters;

pub use attachment::EgressAttachment;
pub use credential::EgressCredential;
pub use dns::DnsSockets;
pub use identity::{EgressIdentity, EgressLimits, TurnSource};
pub use internet::{Internet, SystemInternet};
pub use live_policy::LivePolicy;
pub use proxy_credentials::{
    CredentialSource, PackageSettings, PackageSource, ProxyCredentials, ProxyCredentialsError, TrustSource,
};
pub use session_ca::{CA_BUNDLE_PATH, SessionCa, SessionCaError, TrustStore};
pub use totals::EgressTotals;

/// The egress proxy of a host: serves the listeners of all its sessions.
#[derive(Clone)]
pub struct Egress {
    internet: Arc<dyn Internet>,
    counters: Arc<EgressCounters>,
    trust: Option<TrustSource>,
    credentials: Option<CredentialSource>,
    packages: Option<PackageSource>,
    /// The result of `trust`, computed once.
    trusted: Arc<OnceLock<TrustStore>>,
}

impl Egress {
    /// Returns a proxy without sessions that connects through `internet`.
    pub fn new(internet: Arc<dyn Internet>) -> Self {
        Self {
            internet,
            counters: Arc::default(),
            trust: None,
            credentials: None,
            packages: None,
            trusted: Arc::default(),
        }
    }

    /// Sets the source of trusted roots. Without it, no session can intercept TLS.
    #[must_use]
    pub fn with_trust(mut self, trust: TrustSource) -> Self {
        self.trust = Some(trust);
        self
    }

    /// Sets the source of credentials to inject. Without it, a policy that injects a credential is refused.
    #[must_use]
    pub fn with_credentials(mut self, credentials: CredentialSource) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Sets the source of the settings that package tools inside get while a policy opens registries.
    #[must_use]
    pub fn with_packages(mut self, packages: PackageSource) -> Self {
        self.packages = Some(packages);
        self
    }

    /// Returns the session CA, if `policy` intercepts TLS, and the credentials that `policy` names.
    pub fn proxy_credentials(&self, policy: &EffectivePolicy) -> Result<ProxyCredentials, ProxyCredentialsError> {
        let mut credentials = ProxyCredentials::default();
        if !policy.net().intercept.is_empty() {
            credentials.session_ca = Some(Arc::new(SessionCa::new(self.trust()?)?));
        }
        if policy.net().packages {
            credentials.packages = self.packages.as_ref().map(|settings| settings()).unwrap_or_default();
        }
        let none: CredentialSource = Arc::new(|_| Err("no credentials are configured".to_owned()));
        credentials.with_credentials(policy, self.credentials.as_ref().unwrap_or(&none))
    }

    fn trust(&self) -> Result<TrustStore, ProxyCredentialsError> {
        if let Some(trust) = self.trusted.get() {
            return Ok(trust.clone());
        }
        let unknown = || Err(io::Error::other("no trusted roots are configured"));
        let trust = self.trust.as_ref().map_or_else(unknown, |find| find()).map_err(ProxyCredentialsError::Trust)?;
        Ok(self.trusted.get_or_init(|| trust).clone())
    }

    /// Serves `listener` for the session `identity` until the attachment is closed or dropped.
    ///
    /// Must be called within a Tokio runtime. The listener may live in another network namespace.
    pub fn attach(&self, listener: std::net::TcpListener, identity: EgressIdentity) -> io::Result<EgressAttachment> {
        EgressAttachment::serve(listener, identity, self.internet.clone(), self.counters.clone())
    }

    /// Returns the totals over all sessions since the proxy was created.
    pub fn totals(&self) -> EgressTotals {
        self.counters.read()
    }
}

impl Default for Egress {
    /// Returns a proxy that uses the network of this machine.
    fn default() -> Self {
        Self::new(Arc::new(SystemInternet))
    }
}
