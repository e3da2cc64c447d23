//! Allowed requests: forwarded completely, to the resolved address, and recorded.

use rustls::crypto::ring;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    origin,
    support::{ProxyResponse, Sandbox, allowing, read_head, soon},
};

const NAME: &str = "files.example.com";
const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nKeep-Alive: timeout=5\r\nX-Kept: yes\r\n\r\nhello";

async fn sandbox(response: &str) -> (Sandbox, origin::Seen) {
    let sandbox = Sandbox::new(allowing(&["files.example.com:443", "files.example.com:80"]));
    sandbox.network.name(NAME, &["203.0.113.10"]);
    let seen = origin::http(&sandbox.network, "203.0.113.10:80", response).await;
    (sandbox, seen)
}

/// Opens a tunnel to the TLS port of the host.
async fn tunnel(sandbox: &Sandbox) -> TcpStream {
    let mut stream = sandbox.connect().await;
    stream.write_all(b"CONNECT files.example.com:443 HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
    stream
}

#[tokio::test]
async fn tls_tunnel_is_forwarded_and_recorded_at_its_end() {
    let (sandbox, _) = sandbox(HELLO).await;
    let trust = origin::tls(&sandbox.network, "203.0.113.10:443", NAME, ring::default_provider()).await;
    let mut stream = soon(trust.connect_tls(tunnel(&sandbox).await, NAME)).await.unwrap();
    let sent = vec![7; 3 << 20];
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let write = async {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut back = Vec::new();
    let ((), read) = soon(async { tokio::join!(write, reader.read_to_end(&mut back)) }).await;
    read.unwrap();
    assert!(back == sent, "{} bytes came back", back.len());

    let data = sandbox.record("egress.allowed").await;
    assert_eq!((&data["host"], &data["address"]), (&json!(NAME), &json!("203.0.113.10:443")));
    assert_eq!(data["rule"], "net.allowlist: \"files.example.com:443\" (sandbox.policy.yaml:4)");
    let (bytes, bytes_sent) = (data["bytes"].as_u64().unwrap(), data["bytes_sent"].as_u64().unwrap());
    assert!(bytes_sent > 3 << 20 && bytes - bytes_sent > 3 << 20, "{data}");
    assert!(data["duration_micros"].as_u64().unwrap() > 0 && data["error"].is_null(), "{data}");
    assert_eq!(sandbox.network.called(), ["203.0.113.10:443"]);
    let totals = sandbox.egress.totals();
    assert_eq!((totals.allowed, totals.failed, totals.denied), (1, 0, 0));
    assert_eq!((totals.bytes_sent, totals.bytes_received), (bytes_sent, bytes - bytes_sent));
}

#[tokio::test]
async fn hello_retry_request_is_supported() {
    let (sandbox, _) = sandbox(HELLO).await;
    let mut provider = ring::default_provider();
    // The client's first hello has no key share for this group, so the server sends a retry.
    provider.kx_groups = vec![ring::kx_group::SECP384R1];
    let trust = origin::tls(&sandbox.network, "203.0.113.10:443", NAME, provider).await;
    let mut stream = soon(trust.connect_tls(tunnel(&sandbox).await, NAME)).await.unwrap();
    assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::FullWithHelloRetryRequest));
    stream.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    soon(stream.read_exact(&mut back)).await.unwrap();
    assert_eq!(&back, b"hello");
}

#[tokio::test]
async fn socks_tunnel_resolves_the_name_at_the_proxy() {
    let (sandbox, _) = sandbox(HELLO).await;
    let trust = origin::tls(&sandbox.network, "203.0.113.10:443", NAME, ring::default_provider()).await;
    let mut stream = sandbox.connect().await;
    stream.write_all(b"\x05\x01\x00\x05\x01\x00\x03\x11files.example.com\x01\xbb").await.unwrap();
    let mut reply = [0; 12];
    soon(stream.read_exact(&mut reply)).await.unwrap();
    assert_eq!(reply, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let mut stream = soon(trust.connect_tls(stream, NAME)).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    soon(stream.read_exact(&mut back)).await.unwrap();
    assert_eq!(&back, b"hello");
    drop(stream);
    assert_eq!(sandbox.record("egress.allowed").await["method"], "SOCKS5");
}

#[tokio::test]
async fn plain_request_is_forwarded_without_hop_by_hop_headers() {
    let (sandbox, seen) = sandbox(HELLO).await;
    let response = sandbox
        .send(
            "GET http://files.example.com/a/b?c=d HTTP/1.1\r\nHost: Files.Example.com\r\nUser-Agent: test\r\n\
             Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nConnection: keep-alive, X-Hop\r\n\
             X-Hop: 1\r\nTE: trailers\r\n\r\n",
        )
        .await;
    assert_eq!(
        seen.now(),
        ["GET /a/b?c=d HTTP/1.1\r\nhost: files.example.com\r\nuser-agent: test\r\nconnection: close\r\n\r\n"]
    );
    let expected = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-kept: yes\r\nconnection: close\r\n\r\nhello";
    assert_eq!(response.text(), expected);
    let data = sandbox.record("egress.allowed").await;
    assert_eq!((&data["method"], &data["path"]), (&json!("GET"), &json!("/a/b")));
}

#[tokio::test]
async fn request_body_keeps_its_framing() {
    let (sandbox, seen) = sandbox(HELLO).await;
    let head = "POST http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\n";
    sandbox.send(format!("{head}Content-Length: 3\r\n\r\nabc")).await;
    sandbox.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nt: 1\r\n\r\n")).await;
    let seen = seen.now();
    assert!(seen[0].ends_with("content-length: 3\r\nconnection: close\r\n\r\nabc"), "{}", seen[0]);
    let chunked = "transfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert!(seen[1].ends_with(chunked), "{}", seen[1]);
}

#[tokio::test]
async fn response_framing_fits_the_client_version() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let (sandbox, _) = sandbox(chunked).await;
    let new = sandbox.send("GET http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await;
    assert_eq!(new.body(), "5\r\nhello\r\n0\r\n\r\n");
    let old = sandbox.send("GET http://files.example.com/ HTTP/1.0\r\n\r\n").await;
    assert_eq!(old.body(), "hello");
    assert!(!old.text().contains("transfer-encoding"));
}

#[tokio::test]
async fn expect_100_continue_is_relayed() {
    let (sandbox, _) = sandbox(HELLO).await;
    let listener = sandbox.network.host("203.0.113.10:80").await;
    let mut client = sandbox.connect().await;
    let head = "PUT http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\nExpect: 100-continue\r\n\
                Content-Length: 5\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let (mut host, _) = soon(listener.accept()).await.unwrap();
    assert!(read_head(&mut host).await.contains("expect: 100-continue"));
    host.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
    assert_eq!(read_head(&mut client).await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hello").await.unwrap();
    let mut body = [0; 5];
    soon(host.read_exact(&mut body)).await.unwrap();
    host.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert_eq!(ProxyResponse::read(client).await.status(), Some(204));
}

#[tokio::test]
async fn unreachable_allowed_host_is_a_502() {
    let (sandbox, _) = sandbox(HELLO).await;
    let request = "CONNECT files.example.com:443 HTTP/1.1\r\nHost: files.example.com:443\r\n\r\n";
    let response = sandbox.send(request).await;
    assert_eq!(response.status(), Some(502));
    assert!(response.body().starts_with("viv: `files.example.com` port 443 is allowed but cannot be reached"));
    let data = sandbox.record("egress.allowed").await;
    assert_eq!(data["error"], "connection refused");
}

#[tokio::test]
async fn allowed_name_that_does_not_exist_is_recorded() {
    let sandbox = Sandbox::new(allowing(&["*.example.com:80"]));
    let response = sandbox.send("GET http://gone.example.com/ HTTP/1.1\r\nHost: gone.example.com\r\n\r\n").await;
    assert_eq!(response.status(), Some(502));
    let data = sandbox.record("egress.allowed").await;
    assert_eq!((&data["host"], &data["address"]), (&json!("gone.example.com"), &json!(null)));
    assert_eq!(data["error"], "the name was not found (no such name)");
}

#[tokio::test]
async fn listed_address_needs_no_server_name() {
    let sandbox = Sandbox::new(allowing(&["203.0.113.10:443"]));
    origin::echo(&sandbox.network, "203.0.113.10:443").await;
    let mut stream = sandbox.connect().await;
    stream.write_all(b"CONNECT 203.0.113.10:443 HTTP/1.1\r\nHost: 203.0.113.10:443\r\n\r\n").await.unwrap();
    read_head(&mut stream).await;
    let hello = origin::hello(None);
    stream.write_all(&hello).await.unwrap();
    let mut back = vec![0; hello.len()];
    soon(stream.read_exact(&mut back)).await.unwrap();
    assert!(back == hello && sandbox.network.looked_up().is_empty());
}
