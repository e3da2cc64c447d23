//! Entries of `net.inject`: a header that the proxy sets on requests to a host, with a credential nobody inside sees.

use std::fmt;

use super::endpoint::EndpointPattern;
use super::{Endpoint, Intersect, Pattern};
use crate::value::BadValue;

/// Headers that say where a request goes or where it ends, which are not a credential's business.
const RESERVED: [&str; 12] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "keep-alive",
    "expect",
    "proxy-authorization",
    "proxy-connection",
    "accept-encoding",
];

/// A header with a credential in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeaderInjection {
    /// The header, in lower case.
    pub header: String,
    /// What stands before the credential, as `Bearer `.
    pub before: String,
    /// The name of the credential on the host.
    pub credential: String,
    /// What stands after it.
    pub after: String,
}

/// An entry of `net.inject`: `host[:port] header=text with {credential}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InjectPattern {
    pub(crate) endpoint: EndpointPattern,
    pub(crate) injection: HeaderInjection,
}

impl InjectPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| {
            BadValue::new(format!("`{text}` says not what is injected where"))
                .with_help(format!("{why}; as in \"api.example.com:443 Authorization=Bearer {{github}}\""))
        };
        let (host, rest) = text.split_once(' ').ok_or_else(|| bad("write the host, then the header"))?;
        let (header, value) = rest.split_once('=').ok_or_else(|| bad("write `=` between the header and its text"))?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if header.is_empty() || !header.bytes().all(is_token) {
            return Err(bad("a header has letters, digits and hyphens"));
        }
        let header = header.to_ascii_lowercase();
        if RESERVED.contains(&header.as_str()) {
            return Err(bad("this header says where a request goes, not who asks"));
        }
        let endpoint = EndpointPattern::parse(host)?;
        if !endpoint.is_for_a_host() {
            return Err(bad("a credential is for one host or the names below one, on one port"));
        }
        let parts = value.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
        let (before, (credential, after)) = parts.ok_or_else(|| bad("name the credential in `{}`"))?;
        if credential.is_empty() || !credential.bytes().all(is_token) {
            return Err(bad("the name of a credential has letters, digits, hyphens and underscores"));
        }
        let plain = |text: &str| text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if !plain(before) || !plain(after) || after.contains(['{', '}']) || before.contains('}') {
            return Err(bad("around the credential stands plain text, and there is one credential"));
        }
        let [before, credential, after] = [before, credential, after].map(str::to_owned);
        Ok(Self { endpoint, injection: HeaderInjection { header, before, credential, after } })
    }

    /// Whether both set one header of one host, each to something else.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        self.injection.header == other.injection.header
            && self.injection != other.injection
            && self.endpoint.intersect(&other.endpoint).is_some()
    }
}

impl Pattern for InjectPattern {
    type Subject = Endpoint;

    fn matches(&self, endpoint: &Endpoint) -> bool {
        self.endpoint.matches(endpoint)
    }

    fn covers(&self, other: &Self) -> bool {
        self.injection == other.injection && self.endpoint.covers(&other.endpoint)
    }
}

impl Intersect for InjectPattern {
    fn intersect(&self, other: &Self) -> Option<Self> {
        let endpoint = self.endpoint.intersect(&other.endpoint).filter(|_| self.injection == other.injection)?;
        Some(Self { endpoint, injection: self.injection.clone() })
    }
}

impl fmt::Display for InjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeaderInjection { header, before, credential, after } = &self.injection;
        write!(f, "{} {header}={before}{{{credential}}}{after}", self.endpoint)
    }
}
