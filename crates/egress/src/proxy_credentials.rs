//! What one session is given of the host, so that its requests can be seen and carry what it never sees.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

use policy::{EffectivePolicy, Injection};
use secret::Secret;

use crate::{
    session_ca::{CERTIFICATES, SessionCa, SessionCaError, TrustStore},
    credential::EgressCredential,
    environment::{proxy_environment, trust_environment},
};

/// Finds out whom this host trusts; asked when TLS is opened for the first time.
pub type TrustSource = Arc<dyn Fn() -> io::Result<TrustStore> + Send + Sync>;
/// Finds a credential of the host by its name; the error says why there is none.
pub type CredentialSource = Arc<dyn Fn(&str) -> Result<EgressCredential, String> + Send + Sync>;

/// Why a session cannot be given what its policy asks for.
#[derive(Debug, thiserror::Error)]
pub enum ProxyCredentialsError {
    /// It is not known whom this host trusts.
    #[error("it cannot be found out which certificates this host trusts (net.intercept)")]
    Trust(#[source] io::Error),
    /// Its authority could not be made.
    #[error("the certificate authority of the session cannot be made (net.intercept)")]
    SessionCa(#[from] SessionCaError),
    /// The host has no such credential.
    #[error("there is no credential `{name}` to inject (net.inject): {why}")]
    Credential {
        /// Its name in the policy.
        name: String,
        /// Why.
        why: String,
    },
}

/// The authority and the credentials of one session. The default is neither.
#[derive(Debug, Clone, Default)]
pub struct ProxyCredentials {
    /// Whose certificates open its TLS; none: where the policy has it opened, nothing passes.
    pub authority: Option<Arc<SessionCa>>,
    pub(crate) credentials: BTreeMap<String, EgressCredential>,
}

impl ProxyCredentials {
    /// With the credentials that `policy` names, each of which the host must have.
    pub(crate) fn with_credentials(
        mut self,
        policy: &EffectivePolicy,
        source: &CredentialSource,
    ) -> Result<Self, ProxyCredentialsError> {
        for name in &policy.net().credentials {
            let wrong = |why: &str| ProxyCredentialsError::Credential { name: name.clone(), why: why.to_owned() };
            let credential = source(name).map_err(|why| wrong(&why))?;
            let key = credential.secret.expose();
            if key.is_empty() || !key.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
                return Err(wrong("it is empty, or has characters no header can hold"));
            }
            self.credentials.insert(name.clone(), credential);
        }
        Ok(self)
    }

    /// Adds to `environment` what programs inside find the proxy at `address` by, whom they trust, and placeholders of
    /// the credentials, which replace nothing that is there.
    pub fn add_to_environment(&self, environment: &mut BTreeMap<String, String>, address: SocketAddr) {
        let mut variables = proxy_environment(address);
        if self.authority.is_some() {
            variables.extend(trust_environment(CERTIFICATES));
        }
        environment.extend(variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        for (variable, placeholder) in self.credentials.values().filter_map(EgressCredential::placeholder) {
            environment.entry(variable).or_insert(placeholder);
        }
    }

    /// The value of a header, and the credential in it; none: the session was not given that.
    pub(crate) fn value(&self, injection: &Injection) -> Option<(Vec<u8>, &Secret)> {
        let secret = &self.credentials.get(&injection.credential)?.secret;
        Some(([&injection.before, secret.expose(), &injection.after].concat().into_bytes(), secret))
    }
}
