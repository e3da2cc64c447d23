//! What is no request: refused like everything else, and on record like everything else.

use std::time::Duration;

use egress::EgressLimits;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::{Answer, Sandbox, allowing};

struct Case {
    how: &'static str,
    said: Vec<u8>,
    /// How the answer begins.
    answer: &'static [u8],
    /// Method, host and port on record.
    seen: (&'static str, &'static str, u16),
    /// How the rule on record begins.
    rule: &'static str,
}

fn case(
    how: &'static str,
    said: impl Into<Vec<u8>>,
    answer: &'static [u8],
    seen: (&'static str, &'static str, u16),
    rule: &'static str,
) -> Case {
    Case { how, said: said.into(), answer, seen, rule }
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
        case("a port that is none", connect("a.example.com:99999"), BAD, ("CONNECT", "a.example.com", 0), ""),
        case("no port", connect("a.example.com"), BAD, ("CONNECT", "a.example.com", 0), "CONNECT needs host and port"),
        case("HTTPS fetched", get("https://a.example.com/x?s"), BAD, ("GET", "a.example.com", 443), "only `http://`"),
        case("a request to a server", get("/x"), BAD, ("GET", "a.example.com", 80), "this is a proxy"),
        case(
            "a method in small letters",
            "get http://a.example.com/ HTTP/1.1\r\n\r\n",
            BAD,
            ("get", "a.example.com", 80),
            "a method is written",
        ),
        case(
            "a large head",
            large,
            b"HTTP/1.1 431 ",
            ("GET", "a.example.com", 80),
            "the head of the request is too large",
        ),
        case("HTTP/2 at once", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", BAD, ("PRI", "?", 0), "no HTTP/1 request"),
        case(
            "TLS",
            b"\x16\x03\x01\x02\x00\x01\x00".to_vec(),
            BAD,
            ("TLS", "?", 0),
            "this proxy is spoken to without TLS",
        ),
        case(
            "SOCKS4",
            b"\x04\x01\x00\x50\xcb\x00\x71\x07\x00".to_vec(),
            b"\x00\x5b",
            ("SOCKS4", "203.0.113.7", 80),
            "SOCKS4 is not spoken here",
        ),
        case("a byte of SOCKS4", b"\x04".to_vec(), b"\x00\x5b", ("SOCKS4", "?", 0), "SOCKS4 is not spoken here"),
        case(
            "SOCKS5 with a password",
            b"\x05\x01\x02".to_vec(),
            b"\x05\xff",
            ("SOCKS5", "?", 0),
            "SOCKS5 is spoken without a password",
        ),
        case(
            "SOCKS5 for datagrams",
            b"\x05\x01\x00\x05\x03\x00\x03\x0da.example.com\x00\x35".to_vec(),
            b"\x05\x00\x05\x07",
            ("SOCKS5", "a.example.com", 53),
            "of SOCKS5 only CONNECT",
        ),
    ]
}

#[tokio::test]
async fn whatever_is_refused_for_its_form_is_on_record() {
    for Case { how, said, answer, seen: (method, host, port), rule } in cases() {
        let sandbox = Sandbox::new(allowing(&["a.example.com:80"]));
        let told = sandbox.say(&said).await;
        assert!(told.bytes.starts_with(answer), "{how}: {}", told.text());
        // It is written before anybody is told.
        let records = sandbox.records();
        assert_eq!(records.len(), 1, "{how}: {records:?}");
        let (kind, data) = &records[0];
        assert_eq!(kind, "egress.denied", "{how}");
        assert_eq!(
            (&data["method"], &data["host"], &data["port"]),
            (&json!(method), &json!(host), &json!(port)),
            "{how}"
        );
        let told = data["rule"].as_str().unwrap();
        assert!(told.starts_with(rule) && told.ends_with(" (built-in)"), "{how}: {told}");
        assert!(!data.to_string().contains("?s"), "{how}: {data}");
        assert_eq!(sandbox.egress.totals().denied, 1, "{how}");
        assert!(sandbox.world.looked_up().is_empty() && sandbox.world.called().is_empty(), "{how}");
    }
}

#[tokio::test]
async fn a_name_that_is_not_of_ascii_is_on_record() {
    let sandbox = Sandbox::new(allowing(&["*:443"]));
    let told = sandbox.say(connect("b\u{fc}cher.example:443")).await;
    assert!(matches!(told.status(), Some(400 | 403)), "{}", told.text());
    assert_eq!(sandbox.record("egress.denied").await["host"], "b\u{fc}cher.example");
}

#[tokio::test]
async fn who_is_too_slow_is_on_record() {
    let limits = EgressLimits { head_timeout: Duration::from_millis(100), ..EgressLimits::default() };
    for (said, method) in [("GET http://a.example.com/ HTTP/1.1\r\n", "GET"), ("\u{5}\u{1}", "SOCKS5")] {
        let sandbox = Sandbox::limited(allowing(&["a.example.com:80"]), limits.clone());
        let mut stream = sandbox.connect().await;
        stream.write_all(said.as_bytes()).await.unwrap();
        Answer::read(stream).await;
        let data = sandbox.record("egress.denied").await;
        assert_eq!(
            (&data["method"], &data["rule"]),
            (&json!(method), &json!("the head of the request took too long (built-in)"))
        );
    }
}

#[tokio::test]
async fn garbage_again_and_again_is_counted_not_repeated() {
    let limits = EgressLimits { repeat_window: Duration::from_secs(3600), ..EgressLimits::default() };
    let sandbox = Sandbox::limited(allowing(&["a.example.com:80"]), limits);
    for _ in 0..5 {
        sandbox.say(b"\x16\x03\x01").await;
    }
    let counts: Vec<Value> = sandbox.close().await.into_iter().map(|(_, data)| data["count"].clone()).collect();
    assert_eq!(counts, [Value::Null, json!(4)]);
}
