//! The session CA and the injected credentials of one session.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

use policy::{EffectivePolicy, HeaderInjection};
use secret::Secret;

use crate::{
    credential::EgressCredential,
    environment::{proxy_environment, trust_environment},
    session_ca::{CA_BUNDLE_PATH, SessionCa, SessionCaError, TrustStore},
};

/// Returns the roots that this host trusts; called when TLS is first intercepted.
pub type TrustSource = Arc<dyn Fn() -> io::Result<TrustStore> + Send + Sync>;
/// Returns a credential of the host by its name; the error says reason it is missing.
pub type CredentialSource = Arc<dyn Fn(&str) -> Result<EgressCredential, String> + Send + Sync>;

/// Returns the settings of package tools; called when a policy opens registries.
pub type PackageSource = Arc<dyn Fn() -> PackageSettings + Send + Sync>;

/// What tools inside need to use the package registries of the host. It contains no credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageSettings {
    /// Names and values of variables.
    pub environment: Vec<(String, String)>,
    /// Paths inside the sandbox and contents of files.
    pub files: Vec<(String, String)>,
}

/// Failure to provide the session CA or a credential that a policy needs.
#[derive(Debug, thiserror::Error)]
pub enum ProxyCredentialsError {
    /// The trusted roots of this host cannot be read.
    #[error("cannot read the trusted root certificates of this host (net.intercept)")]
    Trust(#[source] io::Error),
    /// The session CA could not be made.
    #[error("cannot make the certificate authority of the session (net.intercept)")]
    SessionCa(#[from] SessionCaError),
    /// The host has no such credential.
    #[error("cannot inject the credential `{name}` (net.inject): {reason}")]
    Credential {
        /// The credential's name in the policy.
        name: String,
        /// The reason.
        reason: String,
    },
}

/// The session CA and the credentials of one session. The default has neither.
#[derive(Debug, Clone, Default)]
pub struct ProxyCredentials {
    /// The session CA. If it is `None`, connections that the policy intercepts are refused.
    pub session_ca: Option<Arc<SessionCa>>,
    pub(crate) credentials: BTreeMap<String, EgressCredential>,
    pub(crate) packages: PackageSettings,
}

impl ProxyCredentials {
    /// Adds the credentials that `policy` names; fails if the host lacks one of them.
    pub(crate) fn with_credentials(
        mut self,
        policy: &EffectivePolicy,
        source: &CredentialSource,
    ) -> Result<Self, ProxyCredentialsError> {
        for name in &policy.net().credentials {
            let failed =
                |reason: &str| ProxyCredentialsError::Credential { name: name.clone(), reason: reason.to_owned() };
            let credential = source(name).map_err(|reason| failed(&reason))?;
            let key = credential.secret.expose();
            if key.is_empty() || !key.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
                return Err(failed("it is empty or contains characters that a header cannot hold"));
            }
            self.credentials.insert(name.clone(), credential);
        }
        Ok(self)
    }

    /// Returns the files to place in the sandbox: the trusted certificates, and the settings of package tools.
    pub fn files(&self) -> Vec<(String, String)> {
        let bundle = self.session_ca.as_ref().map(|session_ca| (CA_BUNDLE_PATH.to_owned(), session_ca.ca_bundle()));
        bundle.into_iter().chain(self.packages.files.iter().cloned()).collect()
    }

    /// Adds the variables for the proxy at `address`, the trusted certificates and the placeholders of the credentials.
    /// Placeholders do not replace existing variables.
    pub fn add_to_environment(&self, environment: &mut BTreeMap<String, String>, address: SocketAddr) {
        let mut variables = proxy_environment(address);
        if self.session_ca.is_some() {
            variables.extend(trust_environment(CA_BUNDLE_PATH));
        }
        environment.extend(variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        for (name, value) in &self.packages.environment {
            environment.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (variable, placeholder) in self.credentials.values().filter_map(EgressCredential::placeholder) {
            environment.entry(variable).or_insert(placeholder);
        }
    }

    /// Returns the header value and the credential in it; `None` if the session does not have the credential.
    pub(crate) fn header_value(&self, injection: &HeaderInjection) -> Option<(Vec<u8>, &Secret)> {
        let secret = &self.credentials.get(&injection.credential)?.secret;
        Some(([&injection.before, secret.expose(), &injection.after].concat().into_bytes(), secret))
    }
}
