//! Entries of `net.allowlist`: a host with a port, and optionally the methods and paths of requests.

use std::fmt;

use super::endpoint::EndpointPattern;
use super::request::{HttpRequest, RequestPattern};
use super::{Endpoint, Host, Intersect, Pattern, split_port};
use crate::value::InvalidValue;

/// A connection to decide: the host, and the request if the proxy can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionAttempt {
    pub(crate) endpoint: Endpoint,
    pub(crate) request: Option<HttpRequest>,
    /// Whether the tunnel may carry any protocol, not only TLS.
    pub(crate) raw: bool,
    /// Whether the policy opens package registries.
    pub(crate) packages: bool,
}

/// The prefix of a host to which a tunnel may carry any protocol.
const RAW: &str = "raw ";

/// An entry of `net.allowlist`: `[METHOD|METHOD ]host[:port][/path]`, or `raw host:port` for any protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionPattern {
    endpoint: EndpointPattern,
    requests: RequestPattern,
    raw: bool,
    /// Whether the entry stands for a package registry: it has an effect only while `net.packages` is `true`.
    registry: bool,
}

impl ConnectionPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidValue> {
        if let Some(host) = text.strip_prefix(RAW) {
            return Self::parse_raw(host);
        }
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
            return Err(InvalidValue::new(format!("`{text}` is a network"))
                .with_help("only single addresses can be allowed; networks can be denied"));
        }
        let requests = RequestPattern::parse(methods, path)?;
        Ok(Self { endpoint: EndpointPattern::parse(host)?, requests, raw: false, registry: false })
    }

    /// Parses the part after `raw `. A raw entry must name one host and one port.
    fn parse_raw(host: &str) -> Result<Self, InvalidValue> {
        let endpoint = EndpointPattern::parse(host)?;
        if !endpoint.is_specific() || split_port(host).1.is_none() {
            return Err(InvalidValue::new(format!("`{RAW}{host}` must name one host and one port"))
                .with_help("name a host, or the names below one, and a port, as in `raw db.example.com:5432`"));
        }
        Ok(Self { endpoint, requests: RequestPattern::default(), raw: true, registry: false })
    }

    /// Returns the entry as one that stands for a package registry.
    pub(crate) fn into_registry(self) -> Self {
        Self { registry: true, ..self }
    }

    /// Returns whether the entry stands for a package registry.
    pub(crate) fn is_registry(&self) -> bool {
        self.registry
    }

    /// Returns whether the entry names `host`, on any port.
    pub(crate) fn names_host(&self, host: &Host) -> bool {
        self.endpoint.names_host(host)
    }

    /// Returns whether the entry names `endpoint`, at least for some requests.
    pub(crate) fn names_endpoint(&self, endpoint: &Endpoint) -> bool {
        self.endpoint.matches(endpoint)
    }
}

impl Pattern for ConnectionPattern {
    type Candidate = ConnectionAttempt;

    fn matches(&self, reach: &ConnectionAttempt) -> bool {
        (self.raw || !reach.raw)
            && (!self.registry || reach.packages)
            && self.endpoint.matches(&reach.endpoint)
            && self.requests.matches(reach.request.as_ref())
    }

    fn covers(&self, other: &Self) -> bool {
        (self.raw || !other.raw)
            && (!self.registry || other.registry)
            && self.endpoint.covers(&other.endpoint)
            && self.requests.covers(&other.requests)
    }
}

impl Intersect for ConnectionPattern {
    fn intersect(&self, other: &Self) -> Option<Self> {
        let endpoint = self.endpoint.intersect(&other.endpoint)?;
        let requests = self.requests.intersect(&other.requests)?;
        Some(Self { endpoint, requests, raw: self.raw && other.raw, registry: self.registry || other.registry })
    }
}

impl fmt::Display for ConnectionPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = if self.raw { RAW } else { "" };
        write!(f, "{raw}{}{}{}", self.requests.prefix(), self.endpoint, self.requests.suffix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> ConnectionPattern {
        ConnectionPattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    fn tunnel(raw: bool) -> ConnectionAttempt {
        ConnectionAttempt {
            endpoint: "db.example.com:5432".parse().expect("endpoint"),
            request: None,
            raw,
            packages: true,
        }
    }

    #[test]
    fn raw_entry_covers_the_same_entry_without_raw() {
        let (raw, plain) = (pattern("raw db.example.com:5432"), pattern("db.example.com:5432"));
        assert!(raw.matches(&tunnel(true)) && raw.matches(&tunnel(false)));
        assert!(!plain.matches(&tunnel(true)) && plain.matches(&tunnel(false)));
        assert!(raw.covers(&plain) && !plain.covers(&raw));
        assert_eq!(raw.intersect(&plain), Some(plain));
        let below = pattern("raw *.example.com:5432");
        assert!(below.covers(&raw) && below.matches(&tunnel(true)));
        assert_eq!((below.intersect(&raw), raw.to_string()), (Some(raw.clone()), "raw db.example.com:5432".to_owned()));
    }

    #[test]
    fn raw_entry_requires_a_host_and_a_port() {
        for text in [
            "raw ",
            "raw db.example.com",
            "raw *:5432",
            "raw db.example.com:*",
            "raw GET db.example.com:80",
            "raw a.b:1/x",
        ] {
            assert!(ConnectionPattern::parse(text).is_err(), "{text}");
        }
    }
}
