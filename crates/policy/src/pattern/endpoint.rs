//! Patterns of hosts with ports, for allow-lists and deny-lists.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::host::{check_name, parse_port};
use super::{Host, HostError, Intersect, Pattern, wildcard};
use crate::value::InvalidValue;

/// The port of an allow-list entry without a port.
pub(crate) const DEFAULT_PORT: u16 = 443;

/// The destination of a connection.
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

/// The ports that a pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PortPattern {
    /// Every port.
    Any,
    /// One port.
    One(u16),
}

impl PortPattern {
    fn covers(self, other: Self) -> bool {
        self == Self::Any || self == other
    }
}

impl fmt::Display for PortPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::One(port) => port.fmt(f),
        }
    }
}

/// A host pattern with a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointPattern {
    host: HostPattern,
    port: PortPattern,
}

/// `*` and `*.suffix` match names. An address matches only itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum HostPattern {
    AnyName,
    Below(String),
    Exactly(Host),
}

impl EndpointPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidValue> {
        refuse_urls(text)?;
        let bad = |error: HostError| {
            InvalidValue::new(format!("`{text}` is not a host pattern")).with_help(error.to_string())
        };
        let (host, port) = split_port(text);
        let port = match port {
            None => PortPattern::One(DEFAULT_PORT),
            Some("*") => PortPattern::Any,
            Some(port) => PortPattern::One(parse_port(port).map_err(bad)?),
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
    /// Returns whether the pattern has one port, and one host or the names below one.
    pub(crate) fn is_specific(&self) -> bool {
        self.host != HostPattern::AnyName && self.port != PortPattern::Any
    }

    /// Returns whether the pattern names `host`, on any port.
    pub(crate) fn names_host(&self, host: &Host) -> bool {
        self.host.covers(&HostPattern::Exactly(host.clone()))
    }

    /// Returns whether the port is the usual one for TLS.
    pub(crate) fn is_usually_tls(&self) -> bool {
        self.port == PortPattern::One(DEFAULT_PORT)
    }
}

fn refuse_urls(text: &str) -> Result<(), InvalidValue> {
    let Some((_, rest)) = text.split_once("://") else { return Ok(()) };
    let host = rest.split('/').next().unwrap_or(rest);
    Err(InvalidValue::new(format!("`{text}` is a URL")).with_help(format!("write host and port only: `{host}:443`")))
}

fn star_in_the_middle(text: &str) -> InvalidValue {
    InvalidValue::new(format!("`{text}` has a `*` in an invalid place"))
        .with_help("use `*` alone or as the first label, as in `*.example.org:443`")
}

impl Pattern for EndpointPattern {
    type Candidate = Endpoint;

    fn matches(&self, endpoint: &Endpoint) -> bool {
        self.port.covers(PortPattern::One(endpoint.port))
            && self.host.covers(&HostPattern::Exactly(endpoint.host.clone()))
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
        // Host patterns that intersect are nested, and so are ports: the narrower one is the intersection.
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

/// An entry of `net.denylist`. It can match more than an allow-list entry, because denying more is safe.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DenyPattern {
    host: DenyHostPattern,
    port: PortPattern,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum DenyHostPattern {
    /// A name in which `*` matches any text, including dots.
    Names(String),
    Network(IpNet),
}

impl DenyPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidValue> {
        refuse_urls(text)?;
        let bad = |error: HostError| {
            InvalidValue::new(format!("`{text}` is not a host pattern")).with_help(error.to_string())
        };
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self { host: DenyHostPattern::Network(network.trunc()), port: PortPattern::Any });
        }
        let (host, port) = split_port(text);
        let port = match port {
            None | Some("*") => PortPattern::Any,
            Some(port) => PortPattern::One(parse_port(port).map_err(bad)?),
        };
        if let Ok(Host::Address(address)) = host.parse() {
            return Ok(Self { host: DenyHostPattern::Network(address.into()), port });
        }
        check_name(host, |byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'*').map_err(bad)?;
        Ok(Self { host: DenyHostPattern::Names(wildcard::simplify(&host.to_ascii_lowercase())), port })
    }

    pub(crate) fn matches(&self, endpoint: &Endpoint) -> bool {
        self.port.covers(PortPattern::One(endpoint.port))
            && match (&self.host, &endpoint.host) {
                (DenyHostPattern::Names(pattern), Host::Name(name)) => wildcard::matches(pattern, name),
                (DenyHostPattern::Network(network), Host::Address(address)) => contains(network, *address),
                _ => false,
            }
    }
}

impl DenyPattern {
    /// Returns whether every port of `host` is denied.
    pub(crate) fn denies_every_port(&self, host: &Host) -> bool {
        self.port == PortPattern::Any && self.matches(&Endpoint { host: host.clone(), port: DEFAULT_PORT })
    }
}

fn contains(network: &IpNet, address: IpAddr) -> bool {
    network.contains(&address.to_canonical())
}

impl fmt::Display for DenyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            DenyHostPattern::Names(names) => f.write_str(names)?,
            DenyHostPattern::Network(network) if network.prefix_len() == network.max_prefix_len() => {
                Host::from(network.addr()).fmt(f)?;
            }
            DenyHostPattern::Network(network) => network.fmt(f)?,
        }
        match self.port {
            PortPattern::Any => Ok(()),
            PortPattern::One(port) => write!(f, ":{port}"),
        }
    }
}

/// Splits off the port. An IPv6 address without brackets has no port.
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
