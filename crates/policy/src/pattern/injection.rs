//! Entries of `net.inject`: a header with a credential that the proxy adds to requests. The sandbox never sees the
//! credential.

use std::fmt;

use super::endpoint::EndpointPattern;
use super::{Endpoint, Intersect, Pattern};
use crate::value::InvalidValue;

/// Headers that control the connection or the framing of a request. They cannot be injected.
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

/// A header whose value contains a credential.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeaderInjection {
    /// The header name, in lower case.
    pub header: String,
    /// The text before the credential, such as `Bearer `.
    pub before: String,
    /// The name of the credential on the host.
    pub credential: String,
    /// The text after the credential.
    pub after: String,
}

/// An entry of `net.inject`: `host[:port] header=text with {credential}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InjectPattern {
    pub(crate) endpoint: EndpointPattern,
    pub(crate) injection: HeaderInjection,
}

impl InjectPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let bad = |why: &str| {
            InvalidValue::new(format!("`{text}` is not a valid injection"))
                .with_help(format!("{why}; as in \"api.example.com:443 Authorization=Bearer {{github}}\""))
        };
        let (host, rest) = text.split_once(' ').ok_or_else(|| bad("write the host, then the header"))?;
        let (header, value) = rest.split_once('=').ok_or_else(|| bad("write `=` between the header and its value"))?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if header.is_empty() || !header.bytes().all(is_token) {
            return Err(bad("a header name contains letters, digits, `-` and `_`"));
        }
        let header = header.to_ascii_lowercase();
        if RESERVED.contains(&header.as_str()) {
            return Err(bad("this header controls the connection and cannot be injected"));
        }
        let endpoint = EndpointPattern::parse(host)?;
        if !endpoint.is_specific() {
            return Err(bad("name one host, or the names below one, and one port"));
        }
        let parts = value.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
        let (before, (credential, after)) = parts.ok_or_else(|| bad("name the credential in `{}`"))?;
        if credential.is_empty() || !credential.bytes().all(is_token) {
            return Err(bad("the name of a credential contains letters, digits, hyphens and underscores"));
        }
        let plain = |text: &str| text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if !plain(before) || !plain(after) || after.contains(['{', '}']) || before.contains('}') {
            return Err(bad("use one credential and printable text around it"));
        }
        let [before, credential, after] = [before, credential, after].map(str::to_owned);
        Ok(Self { endpoint, injection: HeaderInjection { header, before, credential, after } })
    }

    /// Returns whether both set the same header of the same host to different values.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        self.injection.header == other.injection.header
            && self.injection != other.injection
            && self.endpoint.intersect(&other.endpoint).is_some()
    }
}

impl Pattern for InjectPattern {
    type Candidate = Endpoint;

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
