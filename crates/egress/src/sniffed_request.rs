//! What can be made out of bytes that are no request.
//!
//! They are refused whatever is in them; this is for the record alone, so that whoever reads it can see what was
//! tried. Nothing is decided by it, and nothing of it is sent anywhere.

use std::net::Ipv4Addr;

use policy::Endpoint;

/// Stands for a host that cannot be made out.
const NOBODY: &str = "?";
/// Bytes of a head that are looked at: the lines that name a host come first.
const LOOKED_AT: usize = 8 << 10;

/// What somebody seems to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glimpse {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: Option<String>,
}

impl Glimpse {
    /// Something in a protocol of which nothing more is known.
    pub(crate) fn of_protocol(name: &str) -> Self {
        Self { method: name.to_owned(), host: NOBODY.to_owned(), port: 0, path: None }
    }

    /// The head of a request, as far as there is one.
    pub(crate) fn of_head(head: &[u8]) -> Self {
        let text = legible(&head[..head.len().min(LOOKED_AT)]);
        let mut lines = text.split(['\r', '\n']).filter(|line| !line.is_empty());
        let mut words = lines.next().unwrap_or_default().split([' ', '\t']).filter(|word| !word.is_empty());
        let (method, target) = (words.next().unwrap_or(NOBODY), words.next().unwrap_or_default());
        let glimpse = Self { method: method.to_owned(), ..Self::of_protocol("") };
        if let Some((scheme, rest)) = target.split_once("://") {
            let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
            return glimpse.named(authority, usual_port(scheme)).asking(path);
        }
        if method.eq_ignore_ascii_case("connect") {
            return glimpse.named(target, 0);
        }
        let host = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("host").then_some(value.trim())
        });
        glimpse.named(host.unwrap_or_default(), 80).asking(target)
    }

    /// A request of SOCKS4, as far as it has come: version, command, port, address; then a user, and for a name that.
    pub(crate) fn of_socks4(bytes: &[u8]) -> Self {
        let glimpse = Self::of_protocol("SOCKS4");
        let Some([_, _, high, low, a, b, c, d]) = bytes.first_chunk::<8>() else { return glimpse };
        let port = u16::from_be_bytes([*high, *low]);
        let is_name = [a, b, c] == [&0, &0, &0] && *d != 0;
        let host = if is_name {
            bytes[8..].split(|byte| *byte == 0).nth(1).map(legible)
        } else {
            Some(Ipv4Addr::new(*a, *b, *c, *d).to_string())
        };
        Self { host: host.filter(|host| !host.is_empty()).unwrap_or(glimpse.host), port, ..Self::of_protocol("SOCKS4") }
    }

    /// The same, in a tunnel to `endpoint` that was opened.
    pub(crate) fn inside(self, endpoint: &Endpoint) -> Self {
        Self { host: endpoint.host.to_string(), port: endpoint.port, ..self }
    }

    fn named(self, authority: &str, usual_port: u16) -> Self {
        // A user stands before it, maybe with a password.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of an address in brackets part nothing.
            Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(0)),
            _ => (authority, usual_port),
        };
        if host.is_empty() { self } else { Self { host: host.to_owned(), port, ..self } }
    }

    fn asking(self, path: &str) -> Self {
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

/// Bytes as a text that does no harm where it is shown; line ends stay.
fn legible(bytes: &[u8]) -> String {
    let harmless = |letter: char| if letter.is_control() && !"\r\n\t".contains(letter) { '\u{fffd}' } else { letter };
    String::from_utf8_lossy(bytes).chars().map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(head: &str, method: &str, host: &str, port: u16, path: Option<&str>) {
        let expected = Glimpse { method: method.into(), host: host.into(), port, path: path.map(str::to_owned) };
        assert_eq!(Glimpse::of_head(head.as_bytes()), expected, "{head:?}");
    }

    #[test]
    fn a_head_is_made_out_as_far_as_it_goes() {
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
    fn a_request_of_socks4_names_an_address_or_a_host() {
        let of = |bytes: &[u8]| (Glimpse::of_socks4(bytes).host, Glimpse::of_socks4(bytes).port);
        assert_eq!(of(b"\x04\x01\x00\x50\xcb\x00\x71\x07me\0"), ("203.0.113.7".into(), 80));
        assert_eq!(of(b"\x04\x01\x01\xbb\0\0\0\x01me\0a.example\0"), ("a.example".into(), 443));
        assert_eq!(of(b"\x04\x01"), ("?".into(), 0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            for glimpse in [Glimpse::of_head(&bytes), Glimpse::of_socks4(&bytes)] {
                prop_assert!(!glimpse.host.contains(char::is_control) && !glimpse.host.is_empty());
            }
        }
    }
}
