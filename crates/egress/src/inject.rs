//! Headers that a session's requests carry and the session never sees.
//!
//! What a client wrote in such a header is replaced, whatever it was; and what the host answers is looked through for the
//! credential, which is covered with stars. That holds against a host that repeats it as it is, not against one that
//! encodes it first: so a credential is for a host that is trusted with it.

use policy::Endpoint;
use secret::Redactor;

use crate::{
    session_proxy::Desk,
    http::{Request, Scheme, SetHeader, Target},
    refusal::Refusal,
};

/// A request as it goes to its host.
pub(crate) struct Dressed<'a> {
    pub(crate) request: &'a Request,
    /// Headers that are set in place of the client's.
    pub(crate) headers: Vec<SetHeader>,
    /// Over the credentials in them.
    pub(crate) veils: Vec<Redactor>,
}

impl Desk {
    /// Puts on a request what the policy has it carry.
    pub(crate) fn dress<'a>(&self, request: &'a Request, endpoint: &Endpoint) -> Result<Dressed<'a>, Refusal> {
        let mut dressed = Dressed { request, headers: Vec::new(), veils: Vec::new() };
        // On the port of TLS nothing secret is ever said in the clear.
        let in_the_clear = matches!(request.target, Target::Resource { scheme: Scheme::Http, .. });
        if in_the_clear && endpoint.port == Scheme::Https.usual_port() {
            return Ok(dressed);
        }
        for injection in self.gate.policy.current().injections(endpoint) {
            let (value, secret) = self.outfit.value(&injection).ok_or_else(|| {
                let rule =
                    format!("the credential `{}` (net.inject) was not given to this session", injection.credential);
                Refusal::built_in(rule, "begin a new session with this policy")
            })?;
            dressed.veils.extend(Redactor::over(secret));
            dressed.headers.push((injection.header, Some(value)));
        }
        if dressed.headers.is_empty() {
            return Ok(dressed);
        }
        if request.method == "TRACE" {
            let rule = "TRACE would send back the credential that is injected (net.inject)";
            return Err(Refusal::built_in(rule, "use another method"));
        }
        // What is compressed cannot be looked through, and of a part of it nobody knows what stands before.
        dressed.headers.push(("accept-encoding".to_owned(), Some(b"identity".to_vec())));
        dressed.headers.extend(["range", "if-range"].map(|name| (name.to_owned(), None)));
        Ok(dressed)
    }
}
