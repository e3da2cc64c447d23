//! Host names and addresses, parsed strictly.
//!
//! The code that decides and the code that connects must interpret a name in the same way. Names that programs
//! interpret differently are therefore rejected: user names, percent signs, control characters, a trailing dot,
//! `127.1`, `0x7f000001`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A host as named in a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A DNS name in lower case.
    Name(String),
    /// An IP address. An IPv4-mapped IPv6 address becomes its IPv4 address.
    Address(IpAddr),
}

/// The reason why a text is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The text is empty.
    #[error("a host name cannot be empty")]
    Empty,
    /// The name or a label is longer than DNS allows.
    #[error("a host name has at most 253 characters, and each label at most 63")]
    TooLong,
    /// The name ends with a dot.
    #[error("a host name must not end with a dot")]
    TrailingDot,
    /// The name is not ASCII.
    #[error("a host name must be ASCII: write an international name in punycode (`xn--…`)")]
    NotAscii,
    /// The name contains an invalid character.
    #[error("a host name contains only letters, digits, hyphens and dots")]
    Character,
    /// A label is empty, or starts or ends with a hyphen.
    #[error("a label of a host name must not be empty or start or end with a hyphen")]
    Label,
    /// Some programs read the text as an address, others as a name.
    #[error("a host that ends in a number must be an IPv4 address with all four numbers")]
    Numeric,
    /// The brackets do not contain an IPv6 address.
    #[error("the brackets around a host must contain an IPv6 address without a zone")]
    Bracketed,
    /// The port is invalid.
    #[error("a port must be a number from 1 to 65535")]
    Port,
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(HostError::Bracketed)?;
            let address: Ipv6Addr = inner.parse().map_err(|_| HostError::Bracketed)?;
            return Ok(Self::from(IpAddr::V6(address)));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::from(address));
        }
        check_name(text, |byte| byte.is_ascii_alphanumeric() || byte == b'-')?;
        Ok(Self::Name(text.to_ascii_lowercase()))
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Checks the syntax of a dotted name whose labels consist of `allowed` bytes.
pub(super) fn check_name(text: &str, allowed: impl Fn(u8) -> bool) -> Result<(), HostError> {
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    if !text.is_ascii() {
        return Err(HostError::NotAscii);
    }
    if text.len() > 253 {
        return Err(HostError::TooLong);
    }
    if !text.bytes().all(|byte| byte == b'.' || allowed(byte)) {
        return Err(HostError::Character);
    }
    if text.ends_with('.') {
        return Err(HostError::TrailingDot);
    }
    for label in text.split('.') {
        if label.is_empty() || label.starts_with('-') || label.ends_with('-') {
            return Err(HostError::Label);
        }
        if label.len() > 63 {
            return Err(HostError::TooLong);
        }
    }
    if ends_in_a_number(text) && text.parse::<Ipv4Addr>().is_err() {
        return Err(HostError::Numeric);
    }
    Ok(())
}

/// Returns whether a browser would parse the name as an IPv4 address (WHATWG URL standard).
fn ends_in_a_number(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or(text);
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Parses a port from 1 to 65535, digits only.
pub(crate) fn parse_port(text: &str) -> Result<u16, HostError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0).ok_or(HostError::Port)
}

#[cfg(test)]
mod tests {
    use super::{Host, HostError};

    #[track_caller]
    fn refused(text: &str, why: HostError) {
        assert_eq!(text.parse::<Host>(), Err(why), "{text:?}");
    }

    #[test]
    fn names_are_lower_case_and_addresses_canonical() {
        assert_eq!("Packages.Example.COM".parse(), Ok(Host::Name("packages.example.com".into())));
        assert_eq!("xn--bcher-kva.example".parse(), Ok(Host::Name("xn--bcher-kva.example".into())));
        assert_eq!("[::ffff:10.0.0.1]".parse::<Host>(), "10.0.0.1".parse());
        assert_eq!("2001:db8::1".parse::<Host>().unwrap().to_string(), "[2001:db8::1]");
    }

    #[test]
    fn ambiguous_hosts_are_rejected() {
        refused("", HostError::Empty);
        refused("example.com.", HostError::TrailingDot);
        refused("bücher.example", HostError::NotAscii);
        refused("example.com\0.evil.example", HostError::Character);
        refused("user@example.com", HostError::Character);
        refused("example.com\\@evil.example", HostError::Character);
        refused("example%2ecom", HostError::Character);
        refused("example.com/path", HostError::Character);
        refused("under_score.example", HostError::Character);
        refused("*.example.com", HostError::Character);
        refused("-a.example", HostError::Label);
        refused("a..example", HostError::Label);
        refused(".example", HostError::Label);
        refused("127.1", HostError::Numeric);
        refused("0x7f000001", HostError::Numeric);
        refused("2130706433", HostError::Numeric);
        refused("010.0.0.1", HostError::Numeric);
        refused("1.2.3.4.5", HostError::Numeric);
        refused("[fe80::1%eth0]", HostError::Bracketed);
        refused("[127.0.0.1]", HostError::Bracketed);
        refused(&"a.".repeat(127), HostError::TooLong);
        refused(&"a".repeat(64), HostError::TooLong);
    }
}
