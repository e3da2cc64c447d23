//! A request to the proxy, parsed strictly.

use policy::Endpoint;

use super::{
    framing::{self, BodyFraming},
    head::{self, Header},
    target::RequestTarget,
};
use crate::{
    connector::{AccessQuery, VisibleRequest},
    refusal::Refusal,
};

/// A header name in lower case, and the value that replaces the client's; `None` removes the header.
pub(crate) type SetHeader = (String, Option<Vec<u8>>);

/// Headers that make some servers use another method or path than the request line.
const OVERRIDE_HEADERS: [&str; 8] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-override-url",
    "x-forwarded-uri",
];

/// A request with a valid target. [`ProxyRequest::framing`] checks its headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyRequest {
    pub(crate) method: String,
    pub(crate) target: RequestTarget,
    pub(crate) minor_version: u8,
    pub(crate) headers: Vec<Header>,
}

impl ProxyRequest {
    /// Parses a head that ends with its empty line.
    pub(crate) fn parse(bytes: &[u8], header_lines: usize) -> Result<Self, Refusal> {
        Self::read(bytes, header_lines, RequestTarget::parse)
    }

    /// Parses a head inside intercepted TLS to `endpoint`.
    pub(crate) fn parse_intercepted(bytes: &[u8], header_lines: usize, endpoint: &Endpoint) -> Result<Self, Refusal> {
        Self::read(bytes, header_lines, |method, target| RequestTarget::parse_intercepted(method, target, endpoint))
    }

    fn read(
        bytes: &[u8],
        header_lines: usize,
        target_of: impl Fn(&str, &str) -> Result<RequestTarget, String>,
    ) -> Result<Self, Refusal> {
        head::check_line_ends(bytes)?;
        let mut lines = vec![httparse::EMPTY_HEADER; header_lines];
        let mut parsed = httparse::Request::new(&mut lines);
        match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(_) => return Err(Refusal::Malformed("the head ends before its empty line".to_owned())),
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLarge),
            Err(error) => return Err(Refusal::Malformed(format!("invalid HTTP/1 request ({error})"))),
        }
        let (Some(method), Some(target), Some(minor_version)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Refusal::Malformed("the request line is missing".to_owned()));
        };
        // `connect` differs from CONNECT, but a server could treat both alike.
        if !method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
            return Err(Refusal::Malformed("the method is not in capital letters".to_owned()));
        }
        let target = target_of(method, target).map_err(Refusal::Malformed)?;
        Ok(Self { method: method.to_owned(), target, minor_version, headers: head::headers(parsed.headers) })
    }

    /// Returns the framing of the body; fails if any header is invalid or ambiguous.
    pub(crate) fn framing(&self) -> Result<BodyFraming, Refusal> {
        let refuse = |reason: &str| Err(Refusal::Malformed(reason.to_owned()));
        let hosts: Vec<&[u8]> = head::values(&self.headers, "host").collect();
        match hosts.as_slice() {
            [] if self.minor_version == 0 => {}
            [] => return refuse("the Host header is missing"),
            [host] => {
                if !std::str::from_utf8(host).is_ok_and(|host| self.target.matches_host_header(host)) {
                    return refuse("the Host header differs from the target's host");
                }
            }
            _ => return refuse("the Host header is given twice"),
        }
        // A host behind its own proxy may trust this header.
        let forwarded = head::values(&self.headers, "x-forwarded-host")
            .all(|host| std::str::from_utf8(host).is_ok_and(|host| self.target.matches_host_header(host)));
        if !forwarded {
            return refuse("the X-Forwarded-Host header differs from the target's host");
        }
        // A switched protocol would be a tunnel that the proxy cannot inspect.
        let upgrade = head::words(&self.headers, "connection").iter().any(|word| word == "upgrade");
        if upgrade || self.headers.iter().any(|header| ["upgrade", "http2-settings"].contains(&header.name.as_str())) {
            return refuse("protocol upgrades are not supported (no h2c, no WebSocket without TLS)");
        }
        match framing::from_headers(&self.headers, self.minor_version) {
            Ok(Some(body)) if body != BodyFraming::Length(0) && matches!(self.target, RequestTarget::Tunnel { .. }) => {
                refuse("CONNECT must have no body")
            }
            Ok(framing) => Ok(framing.unwrap_or(BodyFraming::Length(0))),
            Err(reason) => refuse(reason),
        }
    }

    /// Returns the query for the policy.
    pub(crate) fn access_query(&self) -> AccessQuery {
        let (host, port) = (self.target.host(), self.target.port());
        match &self.target {
            RequestTarget::Tunnel { .. } => AccessQuery::tunnel(host, port),
            RequestTarget::Resource { path, scheme, .. } => {
                let overridden =
                    OVERRIDE_HEADERS.into_iter().find(|name| head::values(&self.headers, name).count() > 0);
                let request = VisibleRequest {
                    scheme: *scheme,
                    method: self.method.clone(),
                    path: path.clone(),
                    override_header: overridden,
                };
                AccessQuery { host: host.to_owned(), port, request: Some(request), raw: false }
            }
        }
    }

    /// Returns whether the client accepts JSON.
    pub(crate) fn wants_json(&self) -> bool {
        head::words(&self.headers, "accept").iter().any(|kind| kind.contains("json"))
    }

    /// Encodes the head for the host: origin form, end-to-end headers, and `Connection: close`.
    ///
    /// The headers of `set` replace the client's; a header without a value is left out.
    pub(crate) fn origin_head(&self, endpoint: &Endpoint, framing: BodyFraming, set: &[SetHeader]) -> Vec<u8> {
        let RequestTarget::Resource { path, scheme, .. } = &self.target else { return Vec::new() };
        let is_usual = endpoint.port == scheme.default_port();
        let host = if is_usual { endpoint.host.to_string() } else { endpoint.to_string() };
        let mut bytes = format!("{} {path} HTTP/1.1\r\nhost: {host}\r\n", self.method).into_bytes();
        let end_to_end = head::end_to_end(&self.headers);
        let is_ours =
            |name: &str| ["host", "content-length"].contains(&name) || set.iter().any(|(ours, _)| ours == name);
        head::write(&mut bytes, end_to_end.filter(|header| !is_ours(&header.name)));
        for (name, value) in set {
            if let Some(value) = value {
                bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
            }
        }
        match framing {
            BodyFraming::Length(length) if length > 0 || head::values(&self.headers, "content-length").count() > 0 => {
                bytes.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
            }
            BodyFraming::Chunked => bytes.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            BodyFraming::Length(_) | BodyFraming::UntilClose => {}
        }
        bytes.extend_from_slice(b"connection: close\r\n\r\n");
        bytes
    }
}

#[cfg(test)]
mod tests {
    use policy::Host;
    use proptest::prelude::*;

    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint { host: Host::Name("files.example.com".into()), port: 80 }
    }

    /// Header lines like an attacker's: known names, odd spacing, and any bytes.
    fn line() -> impl Strategy<Value = Vec<u8>> {
        let name = prop_oneof![
            Just("Host"),
            Just("Content-Length"),
            Just("Transfer-Encoding"),
            Just("Connection"),
            Just("Upgrade"),
            Just("X-A"),
            Just("Content-Length "),
            Just(" Host"),
        ];
        let value = prop_oneof![
            Just(b"files.example.com".to_vec()),
            Just(b"evil.example.com".to_vec()),
            Just(b"2".to_vec()),
            Just(b"chunked".to_vec()),
            Just(b"host, content-length".to_vec()),
            Just(b"a\r\nHost: evil.example.com".to_vec()),
            prop::collection::vec(any::<u8>(), 0..12),
        ];
        let end = prop_oneof![9 => Just(&b"\r\n"[..]), 1 => Just(&b"\n"[..]), 1 => Just(&b"\r"[..])];
        (name, value, end).prop_map(|(name, value, end)| [name.as_bytes(), b": ", &value, end].concat())
    }

    proptest! {
        #[test]
        fn forwarded_head_is_unambiguous(lines in prop::collection::vec(line(), 0..5), minor in 0..2) {
            let mut head = format!("POST http://files.example.com/x HTTP/1.{minor}\r\n").into_bytes();
            head.extend(lines.concat());
            head.extend(b"\r\n");
            let Ok(request) = ProxyRequest::parse(&head, 100) else { return Ok(()) };
            let Ok(framing) = request.framing() else { return Ok(()) };
            let passed = request.origin_head(&endpoint(), framing, &[]);

            let mut parsed_lines = [httparse::EMPTY_HEADER; 100];
            let mut parsed = httparse::Request::new(&mut parsed_lines);
            prop_assert_eq!(parsed.parse(&passed), Ok(httparse::Status::Complete(passed.len())));
            let values = |name: &str| -> Vec<Vec<u8>> {
                let found = parsed.headers.iter().filter(|line| line.name.eq_ignore_ascii_case(name));
                found.map(|line| line.value.to_vec()).collect()
            };
            prop_assert_eq!(values("host"), [b"files.example.com".to_vec()]);
            prop_assert_eq!(values("connection"), [b"close".to_vec()]);
            prop_assert!(values("content-length").len() + values("transfer-encoding").len() <= 1);
            prop_assert_eq!(framing::from_headers(&head::headers(parsed.headers), 1).unwrap().unwrap_or(BodyFraming::Length(0)), framing);
            prop_assert!(values("upgrade").is_empty());
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ProxyRequest::parse(&bytes, 10).map(|request| request.framing());
        }
    }
}
