//! Attacks with ambiguous requests to an allowed host.
//!
//! Each attack has a control: the most similar unambiguous request, which must be answered.

use std::time::Duration;

use crate::{
    origin,
    support::{ProxyResponse, Sandbox, allowing},
};
use egress::EgressLimits;
use tokio::io::AsyncWriteExt as _;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const HOST: &str = "Host: files.example.com\r\n";
const GET: &str = "GET http://files.example.com/ HTTP/1.1\r\n";
const POST: &str = "POST http://files.example.com/ HTTP/1.1\r\n";

struct Case {
    how: &'static str,
    attack: String,
    control: String,
    status: u16,
}

fn case(how: &'static str, attack: impl Into<String>, control: impl Into<String>, status: u16) -> Case {
    Case { how, attack: attack.into(), control: control.into(), status }
}

async fn sandbox(limits: EgressLimits) -> (Sandbox, origin::Seen) {
    let sandbox = Sandbox::limited(allowing(&["files.example.com:80"]), limits);
    sandbox.network.name("files.example.com", &["203.0.113.10"]);
    let seen = origin::http(&sandbox.network, "203.0.113.10:80", OK).await;
    (sandbox, seen)
}

async fn check(cases: Vec<Case>) {
    for Case { how, attack, control, status } in cases {
        let (sandbox, seen) = sandbox(EgressLimits::default()).await;
        let response = sandbox.send(&attack).await;
        assert_eq!(response.status(), Some(status), "{how}: {}", response.text());
        assert_eq!(seen.now(), Vec::<String>::new(), "{how} arrived");
        assert_eq!(sandbox.send(&control).await.status(), Some(200), "the control of: {how}");
    }
}

fn get(lines: &str) -> String {
    format!("{GET}{HOST}{lines}\r\n")
}

fn post(lines: &str, body: &str) -> String {
    format!("{POST}{HOST}{lines}\r\n{body}")
}

#[tokio::test]
async fn body_with_two_lengths_is_refused() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let good = post(chunked, "2\r\nhi\r\n0\r\n\r\n");
    let sized = post("Content-Length: 2\r\n", "hi");
    check(vec![
        case("CL.TE", post(&format!("Content-Length: 5\r\n{chunked}"), "0\r\n\r\n"), &good, 400),
        case("TE.CL", post(&format!("{chunked}Content-Length: 5\r\n"), "0\r\n\r\n"), &good, 400),
        case("TE.TE", post(&format!("{chunked}Transfer-Encoding: x\r\n"), "0\r\n\r\n"), &good, 400),
        case("a coding that is not quite chunked", post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), &good, 400),
        case("two codings in a line", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), &good, 400),
        case("a coding behind a tab", post("Transfer-Encoding:\tchunked\x0b\r\n", "0\r\n\r\n"), &good, 400),
        case("two lengths", post("Content-Length: 2\r\nContent-Length: 7\r\n", "hi"), &sized, 400),
        case("two equal lengths", post("Content-Length: 2\r\nContent-Length: 2\r\n", "hi"), &sized, 400),
        case("two lengths in a line", post("Content-Length: 2, 2\r\n", "hi"), &sized, 400),
        case("a length with a sign", post("Content-Length: +2\r\n", "hi"), &sized, 400),
        case("a length in hexadecimal", post("Content-Length: 0x2\r\n", "hi"), &sized, 400),
        case(
            "chunks in HTTP/1.0",
            format!("POST http://files.example.com/ HTTP/1.0\r\n{HOST}{chunked}\r\n0\r\n\r\n"),
            format!("POST http://files.example.com/ HTTP/1.0\r\n{HOST}Content-Length: 2\r\n\r\nhi"),
            400,
        ),
    ])
    .await;
}

#[tokio::test]
async fn request_with_two_hosts_is_refused() {
    let good = get("");
    check(vec![
        case("Host beside the target", format!("{GET}Host: evil.example.com\r\n\r\n"), &good, 400),
        case("Host with another port", format!("{GET}Host: files.example.com:8080\r\n\r\n"), &good, 400),
        case("Host with a user", format!("{GET}Host: x@files.example.com\r\n\r\n"), &good, 400),
        case("two Hosts", get(HOST), &good, 400),
        case("two different Hosts", get("Host: evil.example.com\r\n"), &good, 400),
        case("no Host", format!("{GET}\r\n"), &good, 400),
        case("an empty Host", format!("{GET}Host:\r\n\r\n"), &good, 400),
        case("a Host of two", format!("{GET}Host: files.example.com, evil.example.com\r\n\r\n"), &good, 400),
    ])
    .await;
}

#[tokio::test]
async fn ambiguous_head_is_refused() {
    let good = get("X-A: b\r\n");
    check(vec![
        case("a line that ends in LF", get("X-A: b\nHost: evil.example.com\r\n"), &good, 400),
        case("a line that ends in LF, without another defect", get("X-A: b\nX-C: d\r\n"), &good, 400),
        case("a CR inside a value", get("X-A: b\rHost: evil.example.com\r\n"), &good, 400),
        case("a NUL inside a value", get("X-A: b\0c\r\n"), &good, 400),
        case("a folded line", get("X-A: b\r\n c\r\n"), &good, 400),
        case("a space before the colon", get("Content-Length : 2\r\n"), &good, 400),
        case("a space before a name", format!("{GET} {HOST}\r\n"), &good, 400),
        case("a line without a colon", get("evil\r\n"), &good, 400),
        case("an invalid header name", get("X(A): b\r\n"), &good, 400),
        case("a target with a tab", format!("GET http://files.example.com/\tx HTTP/1.1\r\n{HOST}\r\n"), &good, 400),
        case("a target with a fragment", format!("GET http://files.example.com/#x HTTP/1.1\r\n{HOST}\r\n"), &good, 400),
        case("an unknown version", format!("GET http://files.example.com/ HTTP/1.2\r\n{HOST}\r\n"), &good, 400),
    ])
    .await;
}

#[tokio::test]
async fn other_protocols_are_refused() {
    let good = get("");
    check(vec![
        case(
            "h2c",
            get("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"),
            &good,
            400,
        ),
        case("h2c without saying so", get("HTTP2-Settings: AAMAAABk\r\n"), &good, 400),
        case("h2c hidden by its Connection line", get("Upgrade: h2c\r\n"), &good, 400),
        case("an upgrade to nothing", get("Connection: keep-alive, Upgrade\r\n"), &good, 400),
        case("a WebSocket without TLS", get("Connection: upgrade\r\nUpgrade: websocket\r\n"), &good, 400),
        case("HTTP/2 at once", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &good, 400),
        case("a request to a server", format!("GET / HTTP/1.1\r\n{HOST}\r\n"), &good, 400),
        case(
            "HTTPS fetched by the proxy",
            format!("GET https://files.example.com/ HTTP/1.1\r\n{HOST}\r\n"),
            &good,
            400,
        ),
        case("FTP fetched by the proxy", format!("GET ftp://files.example.com/ HTTP/1.1\r\n{HOST}\r\n"), &good, 400),
        case(
            "a method in small letters",
            format!("connect http://files.example.com/ HTTP/1.1\r\n{HOST}\r\n"),
            &good,
            400,
        ),
        case("the whole server", format!("OPTIONS * HTTP/1.1\r\n{HOST}\r\n"), &good, 400),
        case("SSH", "SSH-2.0-OpenSSH_9.2\r\n\r\n", &good, 400),
        case("TRACE-like garbage", "\u{1}\u{2}\u{3}\r\n\r\n", &good, 400),
    ])
    .await;
}

#[tokio::test]
async fn oversized_head_is_refused() {
    let line = format!("X-A: {}\r\n", "a".repeat(4000));
    check(vec![
        case("a header of a megabyte", get(&format!("X-A: {}\r\n", "a".repeat(1 << 20))), get(&line), 431),
        case("too many bytes in many lines", get(&line.repeat(20)), get(&line.repeat(4)), 431),
        case("too many lines", get(&"X-A: b\r\n".repeat(150)), get(&"X-A: b\r\n".repeat(50)), 431),
        case(
            "a path of a megabyte",
            format!("GET http://files.example.com/{} HTTP/1.1\r\n{HOST}\r\n", "a".repeat(1 << 20)),
            get(""),
            431,
        ),
    ])
    .await;
}

#[tokio::test]
async fn bytes_after_a_request_are_never_forwarded() {
    let (sandbox, seen) = sandbox(EgressLimits::default()).await;
    let smuggled = "GET http://files.example.com/smuggled HTTP/1.1\r\nHost: files.example.com\r\n\r\n";
    assert_eq!(sandbox.send(get("") + smuggled).await.status(), Some(200));
    assert_eq!(sandbox.send(post("Content-Length: 2\r\n", "hi") + smuggled).await.status(), Some(200));
    let chunked = post("Transfer-Encoding: chunked\r\n", "2\r\nhi\r\n0\r\n\r\n");
    assert_eq!(sandbox.send(chunked + smuggled).await.status(), Some(200));
    assert_eq!(seen.now().len(), 3);
    assert!(!seen.now().concat().contains("smuggled"), "{:?}", seen.now());
}

#[tokio::test]
async fn wrong_chunk_length_ends_the_request() {
    let (sandbox, seen) = sandbox(EgressLimits::default()).await;
    for body in ["2\r\nhixx\r\n0\r\n\r\n", "z\r\nhi\r\n0\r\n\r\n", "-2\r\nhi\r\n0\r\n\r\n", "2\nhi\n0\n\n"] {
        let response = sandbox.send(post("Transfer-Encoding: chunked\r\n", body)).await;
        assert_eq!(response.status(), Some(400), "{body:?}");
    }
    assert!(!seen.now().iter().any(|request| request.ends_with("0\r\n\r\n")), "{:?}", seen.now());
    let good = sandbox.send(post("Transfer-Encoding: chunked\r\n", "2\r\nhi\r\n0\r\n\r\n")).await;
    assert_eq!(good.status(), Some(200));
}

#[tokio::test]
async fn slow_request_head_times_out() {
    let limits = EgressLimits { head_timeout: Duration::from_millis(100), ..EgressLimits::default() };
    let (patient, _) = sandbox(EgressLimits::default()).await;
    let (sandbox, seen) = sandbox(limits).await;
    let mut stream = sandbox.connect().await;
    stream.write_all(GET.as_bytes()).await.unwrap();
    assert_eq!(ProxyResponse::read(stream).await.status(), Some(408));
    let silent = ProxyResponse::read(sandbox.connect().await).await;
    assert!(silent.bytes.is_empty());
    assert!(seen.now().is_empty());
    let mut stream = patient.connect().await;
    stream.write_all(GET.as_bytes()).await.unwrap();
    tokio::task::yield_now().await;
    stream.write_all(format!("{HOST}\r\n").as_bytes()).await.unwrap();
    assert_eq!(ProxyResponse::read(stream).await.status(), Some(200));
}

#[tokio::test]
async fn ambiguous_response_is_not_forwarded() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX-A : b\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "",
    ] {
        let sandbox = Sandbox::new(allowing(&["files.example.com:80"]));
        sandbox.network.name("files.example.com", &["203.0.113.10"]);
        origin::http(&sandbox.network, "203.0.113.10:80", response).await;
        assert_eq!(sandbox.send(get("")).await.status(), Some(502), "{response:?}");
    }
}
