//! Attacks that disguise a forbidden host, each in every request form.
//!
//! The control is the same request for an allowed host: it is looked up, connected and answered. The attack must be
//! neither looked up nor connected, and must be recorded.

use crate::{
    origin,
    support::{ProxyResponse, Sandbox, allowing, read_head, soon},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const ALLOWED: &str = "files.example.com";

/// The allow-list: one name on two ports, and every public name on a third.
const LIST: [&str; 3] = ["files.example.com:443", "files.example.com:80", "*:8443"];

/// The idea of the attack, the host, and the port.
const ATTACKS: [(&str, &str, u16); 48] = [
    ("a name that is not listed", "evil.example.com", 443),
    ("a port that is not listed", "files.example.com", 444),
    ("the port of a mail server", "files.example.com", 25),
    ("port zero", "files.example.com", 0),
    ("a listed name as the beginning of another", "files.example.com.evil.example", 443),
    ("a listed name as the end of another", "evilfiles.example.com", 443),
    ("a name below a listed one", "sub.files.example.com", 443),
    ("the parent of a listed name", "example.com", 443),
    ("a listed name as user", "files.example.com@evil.example.com", 443),
    ("a listed name after a user", "evil@files.example.com", 443),
    ("a backslash", "evil.example.com\\@files.example.com", 443),
    ("a backslash as a slash", "evil.example.com\\files.example.com", 443),
    ("a percent-encoded dot", "files%2eexample%2ecom", 443),
    ("a percent-encoded NUL", "evil.example.com%00.files.example.com", 443),
    ("a dot at the end", "files.example.com.", 443),
    ("two dots", "files..example.com", 443),
    ("a look-alike in another alphabet, in punycode", "xn--fles-h6d.example.com", 443),
    ("an underscore", "files_example.com", 443),
    ("a star", "*.example.com", 443),
    ("a semicolon", "evil.example.com;files.example.com", 443),
    ("a comma", "evil.example.com,files.example.com", 443),
    (
        "a label too long for DNS, data in it",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.example.com",
        8443,
    ),
    ("data in a label of an unlisted name", "c2VjcmV0.evil.example.com", 443),
    ("an address for its name", "203.0.113.10", 443),
    ("an address where every name is listed", "203.0.113.66", 8443),
    ("an address in decimal", "3405803842", 8443),
    ("an address in hexadecimal", "0xcb007142", 8443),
    ("an address in octal", "0313.0.0161.0102", 8443),
    ("an address in short", "127.1", 8443),
    ("an address with a zero before", "127.0.0.01", 8443),
    ("loopback", "127.0.0.1", 8443),
    ("another loopback", "127.9.9.9", 8443),
    ("this host", "0.0.0.0", 8443),
    ("loopback in IPv6", "[::1]", 8443),
    ("no address in IPv6", "[::]", 8443),
    ("loopback in IPv4 in IPv6", "[::ffff:127.0.0.1]", 8443),
    ("loopback in NAT64", "[64:ff9b::7f00:1]", 8443),
    ("loopback in 6to4", "[2002:7f00:1::1]", 8443),
    ("a link-local zone", "[fe80::1%25eth0]", 8443),
    ("the gateway of the session", "127.0.0.1", 18080),
    ("the gateway by name", "localhost", 8443),
    ("the control API", "127.0.0.1", 2468),
    ("the metadata service", "169.254.169.254", 8443),
    ("the metadata service by name", "metadata.google.internal", 8443),
    ("another machine on the network", "192.168.1.1", 8443),
    ("a model vendor, where every name is listed", "api.anthropic.com", 8443),
    ("another model vendor", "api.openai.com", 8443),
    ("a third model vendor", "generativelanguage.googleapis.com", 8443),
];

/// The form of a request.
#[derive(Debug, Clone, Copy)]
enum Form {
    Connect,
    Get,
    Socks,
}

impl Form {
    fn ask(self, host: &str, port: u16) -> Vec<u8> {
        match self {
            Self::Connect => format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").into_bytes(),
            Self::Get => format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").into_bytes(),
            Self::Socks => {
                let host = host.trim_matches(['[', ']']);
                let mut bytes = vec![5, 1, 0, 5, 1, 0];
                match host.parse() {
                    Ok(std::net::IpAddr::V4(address)) => bytes.extend([&[1][..], &address.octets()].concat()),
                    Ok(std::net::IpAddr::V6(address)) => bytes.extend([&[4][..], &address.octets()].concat()),
                    Err(_) => bytes.extend([&[3, u8::try_from(host.len()).unwrap()], host.as_bytes()].concat()),
                }
                bytes.extend(port.to_be_bytes());
                bytes
            }
        }
    }

    /// Returns whether the response is a refusal.
    fn is_refused(self, response: &ProxyResponse) -> bool {
        match self {
            Self::Connect | Self::Get => matches!(response.status(), Some(400 | 403)),
            // The greeting's reply, then "not allowed".
            Self::Socks => response.bytes.len() == 12 && response.bytes[..4] == [5, 0, 5, 2],
        }
    }
}

/// Starts a sandbox whose network would response every attack that gets through.
async fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new(allowing(&LIST));
    origin::http(&sandbox.network, "203.0.113.10:80", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    origin::echo(&sandbox.network, "203.0.113.10:443").await;
    for (_, host, port) in ATTACKS {
        sandbox.network.name(host, &["203.0.113.66"]);
        origin::echo(&sandbox.network, &format!("203.0.113.66:{port}")).await;
    }
    sandbox.network.name(ALLOWED, &["203.0.113.10"]);
    sandbox
}

async fn check_attacks(form: Form) {
    let sandbox = sandbox().await;
    for (number, (how, host, port)) in ATTACKS.into_iter().enumerate() {
        let response = sandbox.send(form.ask(host, port)).await;
        assert!(form.is_refused(&response), "{how} ({form:?} {host}:{port}): {response:?}");
        assert_eq!(sandbox.network.looked_up(), Vec::<String>::new(), "{how}");
        assert_eq!(sandbox.network.called(), Vec::<String>::new(), "{how}");
        // An invalid port makes an invalid target, which is not an attempt to reach a host.
        let expected = number + 1 - ATTACKS[..=number].iter().filter(|(_, _, port)| *port == 0).count();
        let recorded = sandbox.records().iter().filter(|(kind, _)| kind == "egress.denied").count();
        assert!(recorded >= expected, "{how}: {recorded} records, {expected} were due");
    }
}

/// Connects to the allowed host and exchanges a few bytes.
async fn check_control(form: Form, port: u16) {
    let sandbox = sandbox().await;
    let mut stream = sandbox.connect().await;
    stream.write_all(&form.ask(ALLOWED, port)).await.unwrap();
    match form {
        Form::Get => assert_eq!(ProxyResponse::read(stream).await.status(), Some(200)),
        Form::Connect | Form::Socks => {
            if matches!(form, Form::Connect) {
                read_head(&mut stream).await;
            } else {
                soon(stream.read_exact(&mut [0; 12])).await.unwrap();
            }
            let hello = origin::hello(Some(ALLOWED));
            stream.write_all(&hello).await.unwrap();
            let mut back = vec![0; hello.len()];
            soon(stream.read_exact(&mut back)).await.unwrap();
            assert_eq!(back, hello);
        }
    }
    assert_eq!(sandbox.network.looked_up(), [ALLOWED]);
    assert_eq!(sandbox.network.called(), [format!("203.0.113.10:{port}")]);
}

#[tokio::test]
async fn connect_refuses_disguised_hosts() {
    check_control(Form::Connect, 443).await;
    check_attacks(Form::Connect).await;
}

#[tokio::test]
async fn plain_request_refuses_disguised_hosts() {
    check_control(Form::Get, 80).await;
    check_attacks(Form::Get).await;
}

#[tokio::test]
async fn socks_refuses_disguised_hosts() {
    check_control(Form::Socks, 443).await;
    check_attacks(Form::Socks).await;
}

#[tokio::test]
async fn host_with_invalid_utf8_is_refused() {
    let sandbox = sandbox().await;
    for host in
        [&b"files.example.com\0"[..], b"evil.example.com\0.files.example.com", b"\xff\xfe", b"files.example.com\r\n"]
    {
        let length = u8::try_from(host.len()).unwrap();
        let response = sandbox.send([&[5, 1, 0, 5, 1, 0, 3, length], host, &[1, 0xbb]].concat()).await;
        assert!(Form::Socks.is_refused(&response), "{host:?}: {response:?}");
        let target = [b"CONNECT ", host, b":443 HTTP/1.1\r\nHost: files.example.com:443\r\n\r\n"].concat();
        assert!(Form::Connect.is_refused(&sandbox.send(target).await), "{host:?}");
    }
    assert!(sandbox.network.looked_up().is_empty());
}
