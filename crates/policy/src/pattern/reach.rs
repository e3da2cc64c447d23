//! Entries of `net.allowlist`: a host with its port, and where it matters which requests to it.

use std::fmt;

use super::endpoint::EndpointPattern;
use super::request::{Request, RequestPattern};
use super::{Endpoint, Host, Intersect, Pattern, split_port};
use crate::value::BadValue;

/// What is asked for: a host, and the request, where the proxy sees one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) endpoint: Endpoint,
    pub(crate) request: Option<Request>,
    /// Whether it is a tunnel that carries something else than TLS for that host.
    pub(crate) raw: bool,
}

/// Stands before a host to which a tunnel may carry anything.
const RAW: &str = "raw ";

/// An entry of `net.allowlist`: `[METHOD|METHOD ]host[:port][/path]`, or `raw host:port`, which is all of that and more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReachPattern {
    endpoint: EndpointPattern,
    requests: RequestPattern,
    raw: bool,
}

impl ReachPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
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
            return Err(BadValue::new(format!("`{text}` is a network"))
                .with_help("only single addresses can be allowed; networks can be denied"));
        }
        let requests = RequestPattern::parse(methods, path)?;
        Ok(Self { endpoint: EndpointPattern::parse(host)?, requests, raw: false })
    }

    /// What nobody looks into is for one host, and for a port that was thought of.
    fn parse_raw(host: &str) -> Result<Self, BadValue> {
        let endpoint = EndpointPattern::parse(host)?;
        if !endpoint.is_for_a_host() || split_port(host).1.is_none() {
            return Err(BadValue::new(format!("`{RAW}{host}` says not where anything may be sent"))
                .with_help("name one host, or the names below one, and its port, as in `raw db.example.com:5432`"));
        }
        Ok(Self { endpoint, requests: RequestPattern::default(), raw: true })
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
        (self.raw || !reach.raw)
            && self.endpoint.matches(&reach.endpoint)
            && self.requests.matches(reach.request.as_ref())
    }

    fn covers(&self, other: &Self) -> bool {
        (self.raw || !other.raw) && self.endpoint.covers(&other.endpoint) && self.requests.covers(&other.requests)
    }
}

impl Intersect for ReachPattern {
    fn intersect(&self, other: &Self) -> Option<Self> {
        let endpoint = self.endpoint.intersect(&other.endpoint)?;
        let requests = self.requests.intersect(&other.requests)?;
        Some(Self { endpoint, requests, raw: self.raw && other.raw })
    }
}

impl fmt::Display for ReachPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = if self.raw { RAW } else { "" };
        write!(f, "{raw}{}{}{}", self.requests.prefix(), self.endpoint, self.requests.suffix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> ReachPattern {
        ReachPattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    fn tunnel(raw: bool) -> Reach {
        Reach { endpoint: "db.example.com:5432".parse().expect("endpoint"), request: None, raw }
    }

    #[test]
    fn raw_is_everything_that_the_same_entry_is_without_it_and_more() {
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
    fn raw_names_a_host_and_a_port() {
        for text in [
            "raw ",
            "raw db.example.com",
            "raw *:5432",
            "raw db.example.com:*",
            "raw GET db.example.com:80",
            "raw a.b:1/x",
        ] {
            assert!(ReachPattern::parse(text).is_err(), "{text}");
        }
    }
}
