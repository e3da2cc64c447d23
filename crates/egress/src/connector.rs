//! The connector of one session: decides on a host, looks its name up once, checks the addresses and connects.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use policy::{Action, Endpoint, Host, RuleRef};
use tokio::{net::TcpStream, sync::Semaphore, time::timeout};

use crate::{http::Scheme, identity::EgressLimits, internet::Internet, live_policy::LivePolicy, refusal::Refusal};

/// Most addresses of one name to try.
const ADDRESS_ATTEMPTS: usize = 4;

/// The access that a client asks for, as the client wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessQuery {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The request to the host, if the proxy can see it.
    pub(crate) request: Option<VisibleRequest>,
    /// Whether the tunnel may carry other protocols than TLS.
    pub(crate) raw: bool,
}

/// A request that the proxy can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VisibleRequest {
    pub(crate) scheme: Scheme,
    pub(crate) method: String,
    pub(crate) path: String,
    /// The header that could make a server see another method or path.
    pub(crate) override_header: Option<&'static str>,
}

impl AccessQuery {
    /// Returns a query for a tunnel.
    pub(crate) fn tunnel(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port, request: None, raw: false }
    }

    /// Returns the endpoint. The host is parsed as the policy parses it, so both mean the same host.
    fn endpoint(&self) -> Result<Endpoint, Refusal> {
        let host = self.host.parse::<Host>().map_err(|error| Refusal::Malformed(error.to_string()))?;
        Ok(Endpoint { host, port: self.port })
    }

    fn action(&self) -> Action {
        let (host, port) = (self.host.clone(), self.port);
        match &self.request {
            None if self.raw => Action::Raw { host, port },
            None => Action::Net { host, port },
            Some(VisibleRequest { method, path, .. }) => {
                Action::Http { host, port, method: method.clone(), path: path.clone() }
            }
        }
    }

    fn is_plain(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.scheme == Scheme::Http)
    }
}

/// Decides which hosts one session may reach, and connects to them.
pub(crate) struct Connector {
    pub(crate) policy: LivePolicy,
    pub(crate) limits: EgressLimits,
    internet: Arc<dyn Internet>,
    /// Limits lookups: each one blocks a thread of a pool that all sessions share.
    lookups: Semaphore,
}

impl Connector {
    pub(crate) fn new(policy: LivePolicy, internet: Arc<dyn Internet>, limits: EgressLimits) -> Self {
        let lookups = Semaphore::new(limits.lookups);
        Self { policy, limits, internet, lookups }
    }

    /// Returns the endpoint and rule if the policy allows `query`. Makes no lookup.
    pub(crate) fn decide(&self, query: &AccessQuery) -> Result<(Endpoint, RuleRef), Refusal> {
        let decision = self.policy.current().decide(&query.action());
        if !decision.is_allowed() {
            return Err(Refusal::from_decision(decision));
        }
        let endpoint = query.endpoint()?;
        if let Some(header) = query.request.as_ref().and_then(|request| request.override_header)
            && self.restricts_requests(query)
        {
            let rule = format!("`{header}` can change the method or path, which the rules of this host restrict");
            return Err(Refusal::built_in(rule, "leave the header out and send the real method and path"));
        }
        if query.is_plain() && self.policy.current().intercepts(&endpoint) {
            let rule = format!("`{endpoint}` requires intercepted TLS (net.intercept), not plain HTTP");
            return Err(Refusal::built_in(rule, format!("request `https://{endpoint}`")));
        }
        Ok((endpoint, decision.rule))
    }

    /// Returns whether rules restrict methods or paths of that host: a request that matches no such rule is denied.
    fn restricts_requests(&self, query: &AccessQuery) -> bool {
        let (host, port) = (query.host.clone(), query.port);
        let any = Action::Http { host, port, method: "?".to_owned(), path: "//".to_owned() };
        !self.policy.current().decide(&any).is_allowed()
    }

    /// Returns the query with `raw` set if the policy allows a raw tunnel, otherwise unchanged.
    pub(crate) fn widen_to_raw(&self, query: &AccessQuery) -> AccessQuery {
        let raw = AccessQuery { raw: true, ..query.clone() };
        let allowed = query.request.is_none() && self.policy.current().decide(&raw.action()).is_allowed();
        if allowed { raw } else { query.clone() }
    }

    /// Returns whether the policy intercepts TLS in the requested tunnel.
    pub(crate) fn intercepts(&self, query: &AccessQuery) -> bool {
        query.endpoint().is_ok_and(|endpoint| self.policy.current().intercepts(&endpoint))
    }

    /// Returns the endpoint and rule if an intercepted tunnel is allowed. Each request in it is decided separately.
    pub(crate) fn decide_interception(&self, query: &AccessQuery) -> Result<(Endpoint, RuleRef), Refusal> {
        let decision = self.policy.current().decide_intercepted_host(&query.host, query.port);
        if !decision.is_allowed() {
            return Err(Refusal::from_decision(decision));
        }
        Ok((query.endpoint()?, decision.rule))
    }

    /// Returns the addresses of an allowed host that the policy lets the proxy call; never empty.
    pub(crate) async fn addresses(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, Refusal> {
        let found = match &endpoint.host {
            // A rule that names this address allowed it.
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.resolve(name).await?,
        };
        let policy = self.policy.current();
        let mut refused = None;
        let mut good = Vec::new();
        for address in found {
            let decision = policy.decide_address(address, endpoint.port);
            if !decision.is_allowed() {
                refused = Some(Refusal::from_decision(decision));
            } else if self.internet.is_local(address) {
                let rule = format!("`{address}` is an address of the host itself");
                refused = Some(Refusal::built_in(rule, "services of the host cannot be reached through the proxy"));
            } else {
                good.push(SocketAddr::new(address, endpoint.port));
            }
        }
        good.truncate(ADDRESS_ATTEMPTS);
        match (good.is_empty(), refused) {
            (false, _) => Ok(good),
            (true, Some(refusal)) => Err(refusal),
            (true, None) => Err(Refusal::Unreachable("the name has no address".to_owned())),
        }
    }

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Refusal> {
        let lookup = async {
            let _permit = self.lookups.acquire().await.map_err(io::Error::other)?;
            self.internet.resolve(name).await
        };
        match timeout(self.limits.resolve_timeout, lookup).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(Refusal::Unreachable(format!("the name was not found ({error})"))),
            Err(_) => Err(Refusal::NoAnswer("the name lookup timed out".to_owned())),
        }
    }

    /// Connects to the first of the addresses that accepts; fails with the refusal of the last one.
    pub(crate) async fn connect(&self, addresses: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), Refusal> {
        let mut last = Refusal::Unreachable("the host has no address".to_owned());
        for address in addresses {
            last = match timeout(self.limits.connect_timeout, self.internet.connect(*address)).await {
                Ok(Ok(stream)) => return Ok((stream, *address)),
                Ok(Err(error)) => Refusal::Unreachable(error.to_string()),
                Err(_) => Refusal::NoAnswer("the connection timed out".to_owned()),
            };
        }
        Err(last)
    }
}
