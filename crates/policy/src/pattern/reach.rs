//! Entries of `net.allowlist`: a host with its port, and where it matters which requests to it.

use std::fmt;

use super::endpoint::EndpointPattern;
use super::request::{Request, RequestPattern};
use super::{Endpoint, Host, Intersect, Pattern};
use crate::value::BadValue;

/// What is asked for: a host, and the request, where the proxy sees one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) endpoint: Endpoint,
    pub(crate) request: Option<Request>,
}

/// An entry of `net.allowlist`: `[METHOD|METHOD ]host[:port][/path]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReachPattern {
    endpoint: EndpointPattern,
    requests: RequestPattern,
}

impl ReachPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        let (methods, rest) = match text.split_once(' ') {
            Some((methods, rest)) if !text.contains("://") => (Some(methods), rest),
            _ => (None, text),
        };
        let (host, path) = match rest.find('/') {
            Some(slash) if !text.contains("://") => (&rest[..slash], Some(&rest[slash..])),
            _ => (rest, None),
        };
        let is_address = host.parse::<Host>().is_ok_and(|host| matches!(host, Host::Address(_)));
        let is_length = path.is_some_and(|path| path[1..].bytes().all(|byte| byte.is_ascii_digit()));
        if is_address && is_length {
            return Err(BadValue::new(format!("`{text}` is a network"))
                .with_help("only single addresses can be allowed; networks can be denied"));
        }
        Ok(Self { endpoint: EndpointPattern::parse(host)?, requests: RequestPattern::parse(methods, path)? })
    }

    /// Whether it is about `host`, on some port.
    pub(crate) fn names_host(&self, host: &Host) -> bool {
        self.endpoint.names_host(host)
    }

    /// Whether it is about the host of `endpoint`, if only for some requests.
    pub(crate) fn names(&self, endpoint: &Endpoint) -> bool {
        self.endpoint.matches(endpoint)
    }
}

impl Pattern for ReachPattern {
    type Subject = Reach;

    fn matches(&self, reach: &Reach) -> bool {
        self.endpoint.matches(&reach.endpoint) && self.requests.matches(reach.request.as_ref())
    }

    fn covers(&self, other: &Self) -> bool {
        self.endpoint.covers(&other.endpoint) && self.requests.covers(&other.requests)
    }
}

impl Intersect for ReachPattern {
    fn intersect(&self, other: &Self) -> Option<Self> {
        let endpoint = self.endpoint.intersect(&other.endpoint)?;
        Some(Self { endpoint, requests: self.requests.intersect(&other.requests)? })
    }
}

impl fmt::Display for ReachPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.requests.prefix(), self.endpoint, self.requests.suffix())
    }
}
