//! Hosts with ports: what may be reached, and what may never be.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::host::{check_name, parse_port};
use super::{Host, HostError, Intersect, Pattern, wildcard};
use crate::value::BadValue;

/// The port meant where an allow-list names none.
pub(crate) const DEFAULT_PORT: u16 = 443;

/// What a connection goes to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

impl FromStr for Endpoint {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let (host, port) = split_port(text);
        let port = port.map_or(Ok(DEFAULT_PORT), parse_port)?;
        Ok(Self { host: host.parse()?, port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Which ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Port {
    /// Every port.
    Any,
    /// One port.
    One(u16),
}

impl Port {
    fn covers(self, other: Self) -> bool {
        self == Self::Any || self == other
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::One(port) => port.fmt(f),
        }
    }
}

/// A host with its port, in `net.allowlist`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointPattern {
    host: HostPattern,
    port: Port,
}

/// Names are matched by `*` and `*.suffix`; addresses only by themselves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum HostPattern {
    AnyName,
    Below(String),
    Exactly(Host),
}

impl EndpointPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        refuse_urls(text)?;
        let bad =
            |error: HostError| BadValue::new(format!("`{text}` is not a host pattern")).with_help(error.to_string());
        let (host, port) = split_port(text);
        let port = match port {
            None => Port::One(DEFAULT_PORT),
            Some("*") => Port::Any,
            Some(port) => Port::One(parse_port(port).map_err(bad)?),
        };
        let host = match host.strip_prefix("*.") {
            _ if host == "*" => HostPattern::AnyName,
            Some(suffix) if suffix.contains('*') => return Err(star_in_the_middle(text)),
            Some(suffix) => match suffix.parse().map_err(bad)? {
                Host::Name(name) => HostPattern::Below(name),
                Host::Address(_) => return Err(bad(HostError::Numeric)),
            },
            None if host.contains('*') => return Err(star_in_the_middle(text)),
            None => HostPattern::Exactly(host.parse().map_err(bad)?),
        };
        Ok(Self { host, port })
    }
}

impl EndpointPattern {
    /// Whether it is about one host or the names below one, and one port.
    pub(crate) fn is_for_a_host(&self) -> bool {
        self.host != HostPattern::AnyName && self.port != Port::Any
    }

    /// Whether it is about `host`, on some port.
    pub(crate) fn names_host(&self, host: &Host) -> bool {
        self.host.covers(&HostPattern::Exactly(host.clone()))
    }

    /// Whether TLS is what everybody speaks on its port.
    pub(crate) fn is_usually_tls(&self) -> bool {
        self.port == Port::One(DEFAULT_PORT)
    }
}

fn refuse_urls(text: &str) -> Result<(), BadValue> {
    let Some((_, rest)) = text.split_once("://") else { return Ok(()) };
    let host = rest.split('/').next().unwrap_or(rest);
    Err(BadValue::new(format!("`{text}` is a URL")).with_help(format!("write host and port only: `{host}:443`")))
}

fn star_in_the_middle(text: &str) -> BadValue {
    BadValue::new(format!("`{text}` has a `*` where none may stand"))
        .with_help("a `*` stands alone or as the first label, as in `*.example.org:443`")
}

impl Pattern for EndpointPattern {
    type Subject = Endpoint;

    fn matches(&self, endpoint: &Endpoint) -> bool {
        self.port.covers(Port::One(endpoint.port)) && self.host.covers(&HostPattern::Exactly(endpoint.host.clone()))
    }

    fn covers(&self, other: &Self) -> bool {
        self.port.covers(other.port) && self.host.covers(&other.host)
    }
}

impl HostPattern {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AnyName, Self::Exactly(Host::Address(_))) => false,
            (Self::AnyName, _) => true,
            (Self::Below(suffix), Self::Below(name)) => suffix == name || is_below(name, suffix),
            (Self::Below(suffix), Self::Exactly(Host::Name(name))) => is_below(name, suffix),
            (Self::Exactly(host), Self::Exactly(other)) => host == other,
            _ => false,
        }
    }
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|head| head.ends_with('.'))
}

impl Intersect for EndpointPattern {
    fn intersect(&self, other: &Self) -> Option<Self> {
        // Both parts are chains where they meet at all: the narrower one is what is common.
        let port = if self.port.covers(other.port) { other.port } else { self.port };
        let host = if self.host.covers(&other.host) { &other.host } else { &self.host };
        let common = Self { host: host.clone(), port };
        (self.covers(&common) && other.covers(&common)).then_some(common)
    }
}

impl fmt::Display for EndpointPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostPattern::AnyName => write!(f, "*:{}", self.port),
            HostPattern::Below(suffix) => write!(f, "*.{suffix}:{}", self.port),
            HostPattern::Exactly(host) => write!(f, "{host}:{}", self.port),
        }
    }
}

/// An entry of `net.denylist`: wider than what can be allowed, as denying too much harms nobody.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Denied {
    host: DeniedHost,
    port: Port,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum DeniedHost {
    /// A name in which `*` stands for any text, dots included.
    Names(String),
    Network(IpNet),
}

impl Denied {
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        refuse_urls(text)?;
        let bad =
            |error: HostError| BadValue::new(format!("`{text}` is not a host pattern")).with_help(error.to_string());
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self { host: DeniedHost::Network(network.trunc()), port: Port::Any });
        }
        let (host, port) = split_port(text);
        let port = match port {
            None | Some("*") => Port::Any,
            Some(port) => Port::One(parse_port(port).map_err(bad)?),
        };
        if let Ok(Host::Address(address)) = host.parse() {
            return Ok(Self { host: DeniedHost::Network(address.into()), port });
        }
        check_name(host, |byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'*').map_err(bad)?;
        Ok(Self { host: DeniedHost::Names(wildcard::simplify(&host.to_ascii_lowercase())), port })
    }

    pub(crate) fn matches(&self, endpoint: &Endpoint) -> bool {
        self.port.covers(Port::One(endpoint.port))
            && match (&self.host, &endpoint.host) {
                (DeniedHost::Names(pattern), Host::Name(name)) => wildcard::matches(pattern, name),
                (DeniedHost::Network(network), Host::Address(address)) => contains(network, *address),
                _ => false,
            }
    }
}

impl Denied {
    /// Whether every port of `host` is denied.
    pub(crate) fn denies_all_of(&self, host: &Host) -> bool {
        self.port == Port::Any && self.matches(&Endpoint { host: host.clone(), port: DEFAULT_PORT })
    }
}

fn contains(network: &IpNet, address: IpAddr) -> bool {
    network.contains(&address.to_canonical())
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            DeniedHost::Names(names) => f.write_str(names)?,
            DeniedHost::Network(network) if network.prefix_len() == network.max_prefix_len() => {
                Host::from(network.addr()).fmt(f)?;
            }
            DeniedHost::Network(network) => network.fmt(f)?,
        }
        match self.port {
            Port::Any => Ok(()),
            Port::One(port) => write!(f, ":{port}"),
        }
    }
}

/// Cuts the port off, leaving a bare IPv6 address whole.
pub(crate) fn split_port(text: &str) -> (&str, Option<&str>) {
    let colon = match text.rfind(']') {
        Some(end) => text[end..].find(':').map(|colon| end + colon),
        None if text.matches(':').count() > 1 => None,
        None => text.find(':'),
    };
    match colon {
        Some(colon) => (&text[..colon], Some(&text[colon + 1..])),
        None => (text, None),
    }
}
