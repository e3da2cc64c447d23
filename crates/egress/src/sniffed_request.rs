//! A best-effort reading of an invalid request, for its record.
//!
//! Invalid requests are always refused. The record shows a person the probable destination. Nothing is decided by it,
//! and nothing of it is sent anywhere.

use std::net::Ipv4Addr;

use policy::Endpoint;

/// The host in the record if the host cannot be read.
const UNKNOWN_HOST: &str = "?";
/// Bytes of a head to look at. The lines that name the host come first.
const SNIFF_BYTES: usize = 8 << 10;

/// The probable content of an invalid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SniffedRequest {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: Option<String>,
}

impl SniffedRequest {
    /// Returns a request of which only the protocol is known.
    pub(crate) fn from_protocol(name: &str) -> Self {
        Self { method: name.to_owned(), host: UNKNOWN_HOST.to_owned(), port: 0, path: None }
    }

    /// Reads as much as possible of an invalid or incomplete request head.
    pub(crate) fn from_head(head: &[u8]) -> Self {
        let text = printable(&head[..head.len().min(SNIFF_BYTES)]);
        let mut lines = text.split(['\r', '\n']).filter(|line| !line.is_empty());
        let mut words = lines.next().unwrap_or_default().split([' ', '\t']).filter(|word| !word.is_empty());
        let (method, target) = (words.next().unwrap_or(UNKNOWN_HOST), words.next().unwrap_or_default());
        let sniffed = Self { method: method.to_owned(), ..Self::from_protocol("") };
        if let Some((scheme, rest)) = target.split_once("://") {
            let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
            return sniffed.with_authority(authority, usual_port(scheme)).with_path(path);
        }
        if method.eq_ignore_ascii_case("connect") {
            return sniffed.with_authority(target, 0);
        }
        let host = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("host").then_some(value.trim())
        });
        sniffed.with_authority(host.unwrap_or_default(), 80).with_path(target)
    }

    /// Reads a SOCKS4 request, possibly incomplete: version, command, port, address, user, and for SOCKS4a a name.
    pub(crate) fn from_socks4(bytes: &[u8]) -> Self {
        let sniffed = Self::from_protocol("SOCKS4");
        let Some([_, _, high, low, a, b, c, d]) = bytes.first_chunk::<8>() else { return sniffed };
        let port = u16::from_be_bytes([*high, *low]);
        let is_name = [a, b, c] == [&0, &0, &0] && *d != 0;
        let host = if is_name {
            bytes[8..].split(|byte| *byte == 0).nth(1).map(printable)
        } else {
            Some(Ipv4Addr::new(*a, *b, *c, *d).to_string())
        };
        Self {
            host: host.filter(|host| !host.is_empty()).unwrap_or(sniffed.host),
            port,
            ..Self::from_protocol("SOCKS4")
        }
    }

    /// Returns the request with the host and port of the intercepted tunnel.
    pub(crate) fn in_tunnel_to(self, endpoint: &Endpoint) -> Self {
        Self { host: endpoint.host.to_string(), port: endpoint.port, ..self }
    }

    fn with_authority(self, authority: &str, usual_port: u16) -> Self {
        // Drops `user:password@`.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match authority.rsplit_once(':') {
            // A colon inside brackets belongs to an IPv6 address.
            Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(0)),
            _ => (authority, usual_port),
        };
        if host.is_empty() { self } else { Self { host: host.to_owned(), port, ..self } }
    }

    fn with_path(self, path: &str) -> Self {
        Self { path: path.starts_with('/').then(|| path.to_owned()), ..self }
    }
}

fn usual_port(scheme: &str) -> u16 {
    match scheme.to_ascii_lowercase().as_str() {
        "http" => 80,
        "https" => 443,
        _ => 0,
    }
}

/// Returns the bytes as text without control characters, except line ends and tabs.
fn printable(bytes: &[u8]) -> String {
    let harmless = |letter: char| if letter.is_control() && !"\r\n\t".contains(letter) { '\u{fffd}' } else { letter };
    String::from_utf8_lossy(bytes).chars().map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(head: &str, method: &str, host: &str, port: u16, path: Option<&str>) {
        let expected = SniffedRequest { method: method.into(), host: host.into(), port, path: path.map(str::to_owned) };
        assert_eq!(SniffedRequest::from_head(head.as_bytes()), expected, "{head:?}");
    }

    #[test]
    fn head_is_read_as_far_as_possible() {
        check("CONNECT a.example:443 HTTP/1.1\r\n", "CONNECT", "a.example", 443, None);
        check("CONNECT a.example HTTP/1.1\r\n", "CONNECT", "a.example", 0, None);
        check("CONNECT a.example:99999 HTTP/1.1\r\n", "CONNECT", "a.example", 0, None);
        check("CONNECT a\0b.example:443 HTTP/1.1\r\n", "CONNECT", "a\u{fffd}b.example", 443, None);
        check("CONNECT [::1]:443 HTTP/1.1", "CONNECT", "[::1]", 443, None);
        check("GET https://u:secret@a.example/x?y HTTP/1.1", "GET", "a.example", 443, Some("/x?y"));
        check("get http://[::1]/ HTTP/1.1", "get", "[::1]", 80, Some("/"));
        check("GET /x HTTP/1.1\r\nHost: a.example:81\r\n\r\n", "GET", "a.example", 81, Some("/x"));
        check("GET /x HTTP/1.1\r\n\r\n", "GET", "?", 0, Some("/x"));
        check("", "?", "?", 0, None);
    }

    #[test]
    fn socks4_request_has_an_address_or_a_name() {
        let of = |bytes: &[u8]| (SniffedRequest::from_socks4(bytes).host, SniffedRequest::from_socks4(bytes).port);
        assert_eq!(of(b"\x04\x01\x00\x50\xcb\x00\x71\x07me\0"), ("203.0.113.7".into(), 80));
        assert_eq!(of(b"\x04\x01\x01\xbb\0\0\0\x01me\0a.example\0"), ("a.example".into(), 443));
        assert_eq!(of(b"\x04\x01"), ("?".into(), 0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_sniffed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            for sniffed in [SniffedRequest::from_head(&bytes), SniffedRequest::from_socks4(&bytes)] {
                prop_assert!(!sniffed.host.contains(char::is_control) && !sniffed.host.is_empty());
            }
        }
    }
}
