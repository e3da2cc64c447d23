//! A request to the proxy, read strictly.

use policy::Endpoint;

use super::{
    framing::{self, Framing},
    head::{self, Header},
    target::Target,
};
use crate::{
    connector::{Asked, Question},
    refusal::Refusal,
};

/// The name of a header in lower case, and what it says in place of the client's own, if it says anything.
pub(crate) type SetHeader = (String, Option<Vec<u8>>);

/// Headers by which some servers take another method or path than those of the first line.
const OVERRIDING: [&str; 8] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-override-url",
    "x-forwarded-uri",
];

/// A request whose target is known; whether its headers make sense is asked with [`Request::framing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: Target,
    pub(crate) minor_version: u8,
    pub(crate) headers: Vec<Header>,
}

impl Request {
    /// Reads a head that ends with its empty line.
    pub(crate) fn parse(bytes: &[u8], header_lines: usize) -> Result<Self, Refusal> {
        Self::read(bytes, header_lines, Target::parse)
    }

    /// The same, in a tunnel to `endpoint` that was opened.
    pub(crate) fn parse_inside(bytes: &[u8], header_lines: usize, endpoint: &Endpoint) -> Result<Self, Refusal> {
        Self::read(bytes, header_lines, |method, target| Target::parse_inside(method, target, endpoint))
    }

    fn read(
        bytes: &[u8],
        header_lines: usize,
        target_of: impl Fn(&str, &str) -> Result<Target, String>,
    ) -> Result<Self, Refusal> {
        head::check_line_ends(bytes)?;
        let mut lines = vec![httparse::EMPTY_HEADER; header_lines];
        let mut parsed = httparse::Request::new(&mut lines);
        match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(_) => return Err(Refusal::Malformed("the head ends before its empty line".to_owned())),
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLarge),
            Err(error) => return Err(Refusal::Malformed(format!("no HTTP/1 request ({error})"))),
        }
        let (Some(method), Some(target), Some(minor_version)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Refusal::Malformed("no request line".to_owned()));
        };
        // `connect` is no CONNECT, but a server behind us might think so.
        if !method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
            return Err(Refusal::Malformed("a method is written in capital letters".to_owned()));
        }
        let target = target_of(method, target).map_err(Refusal::Malformed)?;
        Ok(Self { method: method.to_owned(), target, minor_version, headers: head::headers(parsed.headers) })
    }

    /// How long the body is, if everything else about the headers is in order too.
    pub(crate) fn framing(&self) -> Result<Framing, Refusal> {
        let wrong = |what: &str| Err(Refusal::Malformed(what.to_owned()));
        let hosts: Vec<&[u8]> = head::values(&self.headers, "host").collect();
        match hosts.as_slice() {
            [] if self.minor_version == 0 => {}
            [] => return wrong("the Host header is missing"),
            [host] => {
                if !std::str::from_utf8(host).is_ok_and(|host| self.target.is_named_by(host)) {
                    return wrong("the Host header names another host than the target");
                }
            }
            _ => return wrong("the Host header is given twice"),
        }
        // A host behind a proxy of its own may go by what that is thought to have said.
        let forwarded = head::values(&self.headers, "x-forwarded-host")
            .all(|host| std::str::from_utf8(host).is_ok_and(|host| self.target.is_named_by(host)));
        if !forwarded {
            return wrong("the X-Forwarded-Host header names another host than the target");
        }
        // A switched protocol would be a tunnel nobody looks into.
        let upgrade = head::words(&self.headers, "connection").iter().any(|word| word == "upgrade");
        if upgrade || self.headers.iter().any(|header| ["upgrade", "http2-settings"].contains(&header.name.as_str())) {
            return wrong("the protocol is not switched through this proxy (no h2c, no WebSocket without TLS)");
        }
        match framing::told(&self.headers, self.minor_version) {
            Ok(Some(body)) if body != Framing::Length(0) && matches!(self.target, Target::Tunnel { .. }) => {
                wrong("CONNECT has no body")
            }
            Ok(framing) => Ok(framing.unwrap_or(Framing::Length(0))),
            Err(what) => wrong(what),
        }
    }

    /// What is asked of the policy.
    pub(crate) fn question(&self) -> Question {
        let (host, port) = (self.target.host(), self.target.port());
        match &self.target {
            Target::Tunnel { .. } => Question::tunnel(host, port),
            Target::Resource { path, scheme, .. } => {
                let overridden = OVERRIDING.into_iter().find(|name| head::values(&self.headers, name).count() > 0);
                let request = Asked { scheme: *scheme, method: self.method.clone(), path: path.clone(), overridden };
                Question { host: host.to_owned(), port, request: Some(request), raw: false }
            }
        }
    }

    /// Whether the client would rather read JSON.
    pub(crate) fn wants_json(&self) -> bool {
        head::words(&self.headers, "accept").iter().any(|kind| kind.contains("json"))
    }

    /// The head for the host itself: origin form, what is end to end, and nothing after this request.
    ///
    /// The headers of `set` stand in place of the client's own; one without a value leaves it out.
    pub(crate) fn origin_head(&self, endpoint: &Endpoint, framing: Framing, set: &[SetHeader]) -> Vec<u8> {
        let Target::Resource { path, scheme, .. } = &self.target else { return Vec::new() };
        let is_usual = endpoint.port == scheme.usual_port();
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
            Framing::Length(length) if length > 0 || head::values(&self.headers, "content-length").count() > 0 => {
                bytes.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
            }
            Framing::Chunked => bytes.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            Framing::Length(_) | Framing::UntilClose => {}
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

    /// Header lines as attackers write them: known names, odd spacing, and any bytes.
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
        fn what_is_passed_on_can_be_read_in_one_way_only(lines in prop::collection::vec(line(), 0..5), minor in 0..2) {
            let mut head = format!("POST http://files.example.com/x HTTP/1.{minor}\r\n").into_bytes();
            head.extend(lines.concat());
            head.extend(b"\r\n");
            let Ok(request) = Request::parse(&head, 100) else { return Ok(()) };
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
            prop_assert_eq!(framing::told(&head::headers(parsed.headers), 1).unwrap().unwrap_or(Framing::Length(0)), framing);
            prop_assert!(values("upgrade").is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&bytes, 10).map(|request| request.framing());
        }
    }
}
