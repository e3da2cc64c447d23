//! From a name to a connection: decide, look up once, judge what was found, call exactly that.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use policy::{Action, Endpoint, Host, RuleRef};
use tokio::{net::TcpStream, sync::Semaphore, time::timeout};

use crate::{http::Scheme, identity::EgressLimits, internet::Internet, live_policy::LivePolicy, refusal::Refusal};

/// Addresses of one name that are tried.
const TRIES: usize = 4;

/// What a client asks for, all as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What is asked of the host, where that is seen.
    pub(crate) request: Option<Asked>,
    /// Whether a tunnel carries something else than TLS for that host.
    pub(crate) raw: bool,
}

/// A request that is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) scheme: Scheme,
    pub(crate) method: String,
    pub(crate) path: String,
    /// The header by which a server might take it for another request.
    pub(crate) overridden: Option<&'static str>,
}

impl Question {
    /// Something that nobody looks into.
    pub(crate) fn tunnel(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port, request: None, raw: false }
    }

    /// The host, read as the policy reads it, so that it cannot be another one.
    fn endpoint(&self) -> Result<Endpoint, Refusal> {
        let host = self.host.parse::<Host>().map_err(|error| Refusal::Malformed(error.to_string()))?;
        Ok(Endpoint { host, port: self.port })
    }

    fn action(&self) -> Action {
        let (host, port) = (self.host.clone(), self.port);
        match &self.request {
            None if self.raw => Action::Raw { host, port },
            None => Action::Net { host, port },
            Some(Asked { method, path, .. }) => Action::Http { host, port, method: method.clone(), path: path.clone() },
        }
    }

    fn is_plain(&self) -> bool {
        self.request.as_ref().is_some_and(|asked| asked.scheme == Scheme::Http)
    }
}

/// Decides what one session may reach, and reaches it.
pub(crate) struct Gate {
    pub(crate) policy: LivePolicy,
    pub(crate) limits: EgressLimits,
    internet: Arc<dyn Internet>,
    /// A lookup holds a thread that all sessions share; one session gets a few of them.
    lookups: Semaphore,
}

impl Gate {
    pub(crate) fn new(policy: LivePolicy, internet: Arc<dyn Internet>, limits: EgressLimits) -> Self {
        let lookups = Semaphore::new(limits.lookups);
        Self { policy, limits, internet, lookups }
    }

    /// Whether what is asked for may be reached. Nothing is looked up for this.
    pub(crate) fn decide(&self, question: &Question) -> Result<(Endpoint, RuleRef), Refusal> {
        let decision = self.policy.current().decide(&question.action());
        if !decision.is_allowed() {
            return Err(Refusal::of(decision));
        }
        let endpoint = question.endpoint()?;
        if let Some(header) = question.request.as_ref().and_then(|asked| asked.overridden)
            && self.judges_requests(question)
        {
            let rule =
                format!("`{header}` makes another request of this one for some servers, and only some are allowed");
            return Err(Refusal::built_in(rule, "leave the header out, and ask for what is meant"));
        }
        if question.is_plain() && self.policy.current().intercepts(&endpoint) {
            let rule = format!("`{endpoint}` is spoken to in TLS that is opened (net.intercept), not in the clear");
            return Err(Refusal::built_in(rule, format!("ask for `https://{endpoint}`")));
        }
        Ok((endpoint, decision.rule))
    }

    /// Whether it matters what is asked of that host: a request that no rule about requests can mean is refused.
    fn judges_requests(&self, question: &Question) -> bool {
        let (host, port) = (question.host.clone(), question.port);
        let any = Action::Http { host, port, method: "?".to_owned(), path: "//".to_owned() };
        !self.policy.current().decide(&any).is_allowed()
    }

    /// The same tunnel, for anything, where the policy allows that; a rule that says so is the one that counts.
    pub(crate) fn as_wide_as_allowed(&self, question: &Question) -> Question {
        let raw = Question { raw: true, ..question.clone() };
        let allowed = question.request.is_none() && self.policy.current().decide(&raw.action()).is_allowed();
        if allowed { raw } else { question.clone() }
    }

    /// Whether TLS is opened in the tunnel that is asked for.
    pub(crate) fn intercepts(&self, question: &Question) -> bool {
        question.endpoint().is_ok_and(|endpoint| self.policy.current().intercepts(&endpoint))
    }

    /// Whether a tunnel in which TLS is opened may stand. Each request in it is decided on by itself.
    pub(crate) fn decide_opening(&self, question: &Question) -> Result<(Endpoint, RuleRef), Refusal> {
        let decision = self.policy.current().decide_opening(&question.host, question.port);
        if !decision.is_allowed() {
            return Err(Refusal::of(decision));
        }
        Ok((question.endpoint()?, decision.rule))
    }

    /// The addresses of an allowed host that may be called.
    pub(crate) async fn addresses(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, Refusal> {
        let found = match &endpoint.host {
            // It was allowed as an address, by a rule that names it.
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.resolve(name).await?,
        };
        let policy = self.policy.current();
        let mut refused = None;
        let mut good = Vec::new();
        for address in found {
            let decision = policy.decide_address(address, endpoint.port);
            if !decision.is_allowed() {
                refused = Some(Refusal::of(decision));
            } else if self.internet.is_local(address) {
                let rule = format!("`{address}` is an address of the host itself");
                refused = Some(Refusal::built_in(rule, "reach services of the host in another way"));
            } else {
                good.push(SocketAddr::new(address, endpoint.port));
            }
        }
        good.truncate(TRIES);
        match (good.is_empty(), refused) {
            (false, _) => Ok(good),
            (true, Some(refusal)) => Err(refusal),
            (true, None) => Err(Refusal::Unreachable("its name has no address".to_owned())),
        }
    }

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Refusal> {
        let lookup = async {
            let _permit = self.lookups.acquire().await.map_err(io::Error::other)?;
            self.internet.resolve(name).await
        };
        match timeout(self.limits.resolve_timeout, lookup).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(Refusal::Unreachable(format!("its name was not found ({error})"))),
            Err(_) => Err(Refusal::NoAnswer("its name could not be looked up in time".to_owned())),
        }
    }

    /// Calls the addresses in turn until one answers.
    pub(crate) async fn connect(&self, addresses: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), Refusal> {
        let mut last = Refusal::Unreachable("it has no address".to_owned());
        for address in addresses {
            last = match timeout(self.limits.connect_timeout, self.internet.connect(*address)).await {
                Ok(Ok(stream)) => return Ok((stream, *address)),
                Ok(Err(error)) => Refusal::Unreachable(error.to_string()),
                Err(_) => Refusal::NoAnswer("it did not answer".to_owned()),
            };
        }
        Err(last)
    }
}
