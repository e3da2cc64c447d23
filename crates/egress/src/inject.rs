//! Injection of credentials into the headers of a session's requests (`net.inject`).
//!
//! An injected header replaces the client's. The credential is redacted from the host's response, so that the session
//! never sees it. This works if the host repeats the credential unchanged, not if it encodes it first: inject a
//! credential only for hosts that are trusted with it.

use policy::Endpoint;
use secret::Redactor;

use crate::{
    http::{ProxyRequest, RequestTarget, Scheme, SetHeader},
    refusal::Refusal,
    session_proxy::SessionProxy,
};

/// A request with the headers to inject.
pub(crate) struct PreparedRequest<'a> {
    pub(crate) request: &'a ProxyRequest,
    /// Headers that replace the client's.
    pub(crate) headers: Vec<SetHeader>,
    /// Redactors of the injected credentials.
    pub(crate) redactors: Vec<Redactor>,
}

impl SessionProxy {
    /// Returns the request with the headers that the policy injects for `endpoint`.
    pub(crate) fn prepare_request<'a>(
        &self,
        request: &'a ProxyRequest,
        endpoint: &Endpoint,
    ) -> Result<PreparedRequest<'a>, Refusal> {
        let mut prepared = PreparedRequest { request, headers: Vec::new(), redactors: Vec::new() };
        // On port 443, the port of TLS, a credential is never sent over plain HTTP.
        let in_the_clear = matches!(request.target, RequestTarget::Resource { scheme: Scheme::Http, .. });
        if in_the_clear && endpoint.port == Scheme::Https.default_port() {
            return Ok(prepared);
        }
        for injection in self.connector.policy.current().injections(endpoint) {
            let (value, secret) = self.credentials.header_value(&injection).ok_or_else(|| {
                let rule =
                    format!("the credential `{}` (net.inject) was not given to this session", injection.credential);
                Refusal::built_in(rule, "start a new session with this policy")
            })?;
            prepared.redactors.extend(Redactor::new(secret));
            prepared.headers.push((injection.header, Some(value)));
        }
        if prepared.headers.is_empty() {
            return Ok(prepared);
        }
        if request.method == "TRACE" {
            let rule = "TRACE would return the injected credential (net.inject)";
            return Err(Refusal::built_in(rule, "use another method"));
        }
        // The redactor cannot search compressed responses, nor a range that could start inside the credential.
        prepared.headers.push(("accept-encoding".to_owned(), Some(b"identity".to_vec())));
        prepared.headers.extend(["range", "if-range"].map(|name| (name.to_owned(), None)));
        Ok(prepared)
    }
}
