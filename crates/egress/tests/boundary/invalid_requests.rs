//! Invalid requests: refused and recorded.

use std::time::Duration;

use egress::EgressLimits;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::{ProxyResponse, Sandbox, allowing};

struct Case {
    how: &'static str,
    bytes: Vec<u8>,
    /// The start of the response.
    response: &'static [u8],
    /// The recorded method, host and port.
    seen: (&'static str, &'static str, u16),
    /// The start of the recorded rule.
    rule: &'static str,
}

fn case(
    how: &'static str,
    bytes: impl Into<Vec<u8>>,
    response: &'static [u8],
    seen: (&'static str, &'static str, u16),
    rule: &'static str,
) -> Case {
    Case { how, bytes: bytes.into(), response, seen, rule }
}

const BAD: &[u8] = b"HTTP/1.1 400 ";

fn connect(authority: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

fn cases() -> Vec<Case> {
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a.example.com\r\n\r\n");
    let large = format!("GET http://a.example.com/ HTTP/1.1\r\nX-A: {}\r\n\r\n", "a".repeat(40 << 10));
    vec![
        case("a NUL in a name", connect("a\0b.example.com:443"), BAD, ("CONNECT", "a\u{fffd}b.example.com", 443), ""),
        case("an invalid port", connect("a.example.com:99999"), BAD, ("CONNECT", "a.example.com", 0), ""),
        case("no port", connect("a.example.com"), BAD, ("CONNECT", "a.example.com", 0), "CONNECT needs host and port"),
        case("HTTPS fetched", get("https://a.example.com/x?s"), BAD, ("GET", "a.example.com", 443), "only `http://`"),
        case("a request to a server", get("/x"), BAD, ("GET", "a.example.com", 80), "the proxy accepts only"),
        case(
            "a method in small letters",
            "get http://a.example.com/ HTTP/1.1\r\n\r\n",
            BAD,
            ("get", "a.example.com", 80),
            "the method is not in capital",
        ),
        case("a large head", large, b"HTTP/1.1 431 ", ("GET", "a.example.com", 80), "the request head is too large"),
        case("HTTP/2 at once", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", BAD, ("PRI", "?", 0), "invalid HTTP/1 request"),
        case("TLS", b"\x16\x03\x01\x02\x00\x01\x00".to_vec(), BAD, ("TLS", "?", 0), "the proxy does not accept TLS"),
        case(
            "SOCKS4",
            b"\x04\x01\x00\x50\xcb\x00\x71\x07\x00".to_vec(),
            b"\x00\x5b",
            ("SOCKS4", "203.0.113.7", 80),
            "SOCKS4 is not supported",
        ),
        case("a byte of SOCKS4", b"\x04".to_vec(), b"\x00\x5b", ("SOCKS4", "?", 0), "SOCKS4 is not supported"),
        case(
            "SOCKS5 with a password",
            b"\x05\x01\x02".to_vec(),
            b"\x05\xff",
            ("SOCKS5", "?", 0),
            "SOCKS5 authentication",
        ),
        case(
            "SOCKS5 for datagrams",
            b"\x05\x01\x00\x05\x03\x00\x03\x0da.example.com\x00\x35".to_vec(),
            b"\x05\x00\x05\x07",
            ("SOCKS5", "a.example.com", 53),
            "only the SOCKS5 command CONNECT",
        ),
    ]
}

#[tokio::test]
async fn invalid_requests_are_recorded() {
    for Case { how, bytes, response, seen: (method, host, port), rule } in cases() {
        let sandbox = Sandbox::new(allowing(&["a.example.com:80"]));
        let answered = sandbox.send(&bytes).await;
        assert!(answered.bytes.starts_with(response), "{how}: {}", answered.text());
        // The record is written before the client gets the response.
        let records = sandbox.records();
        assert_eq!(records.len(), 1, "{how}: {records:?}");
        let (kind, data) = &records[0];
        assert_eq!(kind, "egress.denied", "{how}");
        assert_eq!(
            (&data["method"], &data["host"], &data["port"]),
            (&json!(method), &json!(host), &json!(port)),
            "{how}"
        );
        let text = data["rule"].as_str().unwrap();
        assert!(text.starts_with(rule) && text.ends_with(" (built-in)"), "{how}: {text}");
        assert!(!data.to_string().contains("?s"), "{how}: {data}");
        assert_eq!(sandbox.egress.totals().denied, 1, "{how}");
        assert!(sandbox.network.looked_up().is_empty() && sandbox.network.called().is_empty(), "{how}");
    }
}

#[tokio::test]
async fn non_ascii_name_is_recorded() {
    let sandbox = Sandbox::new(allowing(&["*:443"]));
    let text = sandbox.send(connect("b\u{fc}cher.example:443")).await;
    assert!(matches!(text.status(), Some(400 | 403)), "{}", text.text());
    assert_eq!(sandbox.record("egress.denied").await["host"], "b\u{fc}cher.example");
}

#[tokio::test]
async fn slow_request_is_recorded() {
    let limits = EgressLimits { head_timeout: Duration::from_millis(100), ..EgressLimits::default() };
    for (bytes, method) in [("GET http://a.example.com/ HTTP/1.1\r\n", "GET"), ("\u{5}\u{1}", "SOCKS5")] {
        let sandbox = Sandbox::limited(allowing(&["a.example.com:80"]), limits.clone());
        let mut stream = sandbox.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        ProxyResponse::read(stream).await;
        let data = sandbox.record("egress.denied").await;
        assert_eq!(
            (&data["method"], &data["rule"]),
            (&json!(method), &json!("the request head did not arrive in time (built-in)"))
        );
    }
}

#[tokio::test]
async fn repeated_invalid_requests_are_counted() {
    let limits = EgressLimits { repeat_window: Duration::from_secs(3600), ..EgressLimits::default() };
    let sandbox = Sandbox::limited(allowing(&["a.example.com:80"]), limits);
    for _ in 0..5 {
        sandbox.send(b"\x16\x03\x01").await;
    }
    let counts: Vec<Value> = sandbox.close().await.into_iter().map(|(_, data)| data["count"].clone()).collect();
    assert_eq!(counts, [Value::Null, json!(4)]);
}
