//! Injected credentials: the host gets them, the sandbox never sees them.

use policy::{NarrowingLayer, PolicySource};
use tokio::io::AsyncWriteExt as _;

use crate::{
    origin::{self, Seen, Trust, certified},
    support::{ProxyResponse, Sandbox, policy, read_head, soon},
};

const NAME: &str = "api.example.com";
const CANARY: &str = "canary-3f9a7c51e2";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Starts a session that injects a credential for one host, and that host.
async fn scene(response: &str) -> (Sandbox, Seen) {
    let rules = policy(
        "net:\n  enabled: true\n  allowlist: [api.example.com, 'plain.example.com:80', 'other.example.com:80']\n  \
         intercept: [api.example.com]\n  inject:\n    - api.example.com Authorization=Bearer {token}\n    \
         - plain.example.com:80 X-Key={token}\n",
    );
    let (acceptor, root) = certified(NAME, rustls::crypto::ring::default_provider());
    let sandbox = Sandbox::with_credentials(rules, &root, &[("token", CANARY)]);
    sandbox.network.name(NAME, &["203.0.113.20"]);
    let seen = origin::https(&sandbox.network, "203.0.113.20:443", acceptor, response).await;
    (sandbox, seen)
}

async fn send(sandbox: &Sandbox, request: &str) -> ProxyResponse {
    let mut stream = sandbox.connect().await;
    stream.write_all(b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n").await.unwrap();
    read_head(&mut stream).await;
    let trust = Trust::of(sandbox.session_ca.as_ref().unwrap().certificate());
    let mut stream = soon(trust.connect_tls(stream, NAME)).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    ProxyResponse::read(stream).await
}

#[tokio::test]
async fn injected_header_replaces_the_clients() {
    let (sandbox, seen) = scene(OK).await;
    for written in ["", "Authorization: Bearer placeholder\r\n", "authorization: a\r\nAUTHORIZATION: b\r\n"] {
        let response = send(&sandbox, &format!("GET /v1 HTTP/1.1\r\nHost: {NAME}\r\n{written}\r\n")).await;
        assert_eq!(response.status(), Some(200));
    }
    for request in seen.now() {
        assert_eq!(
            request,
            format!(
                "GET /v1 HTTP/1.1\r\nhost: {NAME}\r\nauthorization: Bearer {CANARY}\r\naccept-encoding: identity\r\n\
                 connection: close\r\n\r\n"
            )
        );
    }
    let records = sandbox.close().await;
    assert!(records.len() == 3 && !format!("{records:?}").contains(CANARY));
}

#[tokio::test]
async fn range_is_not_forwarded_with_an_injected_credential() {
    let (sandbox, seen) = scene(OK).await;
    let response =
        send(&sandbox, &format!("GET /v1 HTTP/1.1\r\nHost: {NAME}\r\nRange: bytes=0-7\r\nIf-Range: x\r\n\r\n")).await;
    assert_eq!(response.status(), Some(200));
    let request = seen.now().remove(0);
    assert!(request.contains(CANARY) && !request.to_lowercase().contains("range"), "{request}");
}

#[tokio::test]
async fn plain_http_injection_applies_only_to_its_host_and_port() {
    let (sandbox, _) = scene(OK).await;
    for name in ["plain.example.com", "other.example.com"] {
        sandbox.network.name(name, &["203.0.113.30"]);
    }
    let seen = origin::http(&sandbox.network, "203.0.113.30:80", OK).await;
    for name in ["plain.example.com", "other.example.com"] {
        let response = sandbox.send(format!("GET http://{name}/ HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
        assert_eq!(response.status(), Some(200));
    }
    let got: Vec<bool> = seen.now().iter().map(|request| request.contains(CANARY)).collect();
    assert_eq!(got, [true, false]);
}

#[tokio::test]
async fn credential_is_redacted_from_responses() {
    let body = format!("you said {CANARY}, {CANARY}{CANARY} and canary-3f9a");
    let whole = format!(
        "HTTP/1.1 200 OK\r\nX-Echo: Bearer {CANARY}\r\nSet-Cookie: a={CANARY}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let in_chunks =
        body.as_bytes().chunks(7).map(|piece| format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)));
    let in_chunks: String = in_chunks.collect();
    let chunked = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{in_chunks}0\r\n\r\n");
    for response in [whole, chunked] {
        let (sandbox, seen) = scene(&response).await;
        let response = send(&sandbox, &format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await;
        assert!(seen.now()[0].contains(CANARY), "the host did not get the credential");
        assert_eq!(response.status(), Some(200));
        let unframed: String = response.text().split("\r\n").filter(|line| line.len() > 2).collect();
        assert!(!response.text().contains(CANARY) && !unframed.contains(CANARY), "{}", response.text());
        assert!(unframed.contains("canary-3f9a"), "other text was redacted too: {}", response.text());
    }
}

#[tokio::test]
async fn trace_with_an_injected_credential_is_refused() {
    let (sandbox, seen) = scene(OK).await;
    let response = send(&sandbox, &format!("TRACE / HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await;
    assert_eq!(response.status(), Some(403));
    assert!(response.body().contains("net.inject") && !response.text().contains(CANARY), "{}", response.body());
    assert!(seen.now().is_empty());
}

#[tokio::test]
async fn refusals_and_failures_do_not_contain_the_credential() {
    let (sandbox, _) = scene("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx").await;
    let mut response = Vec::new();
    for request in ["GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"] {
        response.push(send(&sandbox, request).await.text());
    }
    assert!(response[0].contains("502") && response[1].contains("400"), "{response:?}");
    let records = sandbox.close().await;
    assert!(!format!("{response:?}{records:?}").contains(CANARY));
}

#[tokio::test]
async fn missing_credential_refuses_the_request() {
    let (sandbox, seen) = scene(OK).await;
    let more = NarrowingLayer::grant("net.inject=api.example.com X-More={other}").unwrap();
    sandbox.policy.replace(sandbox.policy.current().with_grant(&more).unwrap());
    let response = send(&sandbox, &format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await;
    assert_eq!(response.status(), Some(403));
    assert!(response.body().contains("the credential `other`"), "{}", response.body());
    assert!(seen.now().is_empty());
    let less = NarrowingLayer::read(&PolicySource::new("session", "net: {inject: []}\n")).unwrap();
    sandbox.policy.replace(sandbox.policy.current().restricted_by(&less));
    assert_eq!(send(&sandbox, &format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await.status(), Some(200));
    assert!(!seen.now()[0].contains(CANARY));
}
