//! Attacks through a tunnel to an allowed host.

use std::time::Duration;

use crate::{
    origin,
    support::{ProxyResponse, Sandbox, allowing, read_head, soon},
};
use egress::EgressLimits;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const NAME: &str = "files.example.com";
const TLS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

fn sandbox(limits: EgressLimits) -> Sandbox {
    let sandbox = Sandbox::limited(allowing(&["files.example.com:443", "203.0.113.10:443"]), limits);
    sandbox.network.name(NAME, &["203.0.113.10"]);
    sandbox
}

async fn tunnel(sandbox: &Sandbox, host: &str) -> TcpStream {
    let mut stream = sandbox.connect().await;
    let request = format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
    stream
}

/// Sends `bytes` through a tunnel to `host`. Returns the client's response, the bytes at the host and the recorded rule.
async fn carry(host: &str, bytes: &[u8]) -> (ProxyResponse, Vec<u8>, String) {
    let sandbox = sandbox(EgressLimits::default());
    let listener = sandbox.network.host("203.0.113.10:443").await;
    let mut stream = tunnel(&sandbox, host).await;
    let (mut upstream, _) = soon(listener.accept()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut arrived = Vec::new();
    let (response, _) = tokio::join!(ProxyResponse::read(stream), soon(upstream.read_to_end(&mut arrived)));
    let data = sandbox.record("egress.denied").await;
    (response, arrived, data["rule"].as_str().unwrap().to_owned())
}

/// Replaces an extension's type by that of Encrypted Client Hello.
fn with_encrypted_name(mut hello: Vec<u8>) -> Vec<u8> {
    // Every hello of the client contains supported_versions with two versions.
    let at = hello.windows(4).position(|bytes| bytes == [0, 43, 0, 5]).unwrap();
    hello[at..at + 2].copy_from_slice(&[0xfe, 0x0d]);
    hello
}

#[tokio::test]
async fn only_tls_for_the_tunnels_host_is_forwarded() {
    let named = |name: &str| origin::hello(Some(name));
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("domain fronting", named("evil.example.com"), "the TLS server name `evil.example.com` is not"),
        ("a name below", named("sub.files.example.com"), "is not the tunnel's host"),
        ("the parent", named("example.com"), "is not the tunnel's host"),
        ("no name", origin::hello(None), "the TLS server name is missing"),
        ("a hidden name", with_encrypted_name(named(NAME)), "encrypts its server name"),
        ("plain HTTP", b"GET / HTTP/1.1\r\nHost: files.example.com\r\n\r\n".to_vec(), "only TLS is allowed"),
        ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "only TLS is allowed"),
        ("TLS application data", b"\x17\x03\x03\x00\x01x".to_vec(), "only TLS is allowed"),
    ];
    for (how, bytes, rule) in cases {
        let (response, arrived, recorded) = carry(NAME, &bytes).await;
        assert!(recorded.contains(rule), "{how}: {recorded}");
        assert!(arrived.is_empty(), "{how}: {} bytes arrived", arrived.len());
        match bytes[0] {
            22 => assert_eq!(response.bytes, TLS_DENIED, "{how}"),
            b'G' | b'S' => assert_eq!(response.status(), Some(403), "{how}"),
            _ => assert!(response.bytes.is_empty(), "{how}"),
        }
    }
}

#[tokio::test]
async fn tunnel_to_an_address_allows_no_server_name() {
    let (response, arrived, rule) = carry("203.0.113.10", &origin::hello(Some("evil.example.com"))).await;
    assert!(rule.contains("is not the tunnel's host `203.0.113.10`"), "{rule}");
    assert!(arrived.is_empty() && response.bytes == TLS_DENIED);
}

#[tokio::test]
async fn fragmented_hello_is_forwarded_unchanged() {
    let sandbox = sandbox(EgressLimits::default());
    origin::echo(&sandbox.network, "203.0.113.10:443").await;
    let mut stream = tunnel(&sandbox, NAME).await;
    stream.set_nodelay(true).unwrap();
    let hello = origin::hello(Some(NAME));
    for byte in &hello {
        stream.write_all(&[*byte]).await.unwrap();
    }
    let mut back = vec![0; hello.len()];
    soon(stream.read_exact(&mut back)).await.unwrap();
    assert_eq!(back, hello);
}

#[tokio::test]
async fn second_hello_for_another_host_is_refused() {
    for (second, passes) in [("evil.example.com", false), (NAME, true)] {
        let sandbox = sandbox(EgressLimits::default());
        let listener = sandbox.network.host("203.0.113.10:443").await;
        let mut client = tunnel(&sandbox, NAME).await;
        let (mut host, _) = soon(listener.accept()).await.unwrap();
        let hello = origin::hello(Some(NAME));
        client.write_all(&hello).await.unwrap();
        soon(host.read_exact(&mut vec![0; hello.len()])).await.unwrap();
        let retry = retry_request();
        host.write_all(&retry).await.unwrap();
        soon(client.read_exact(&mut vec![0; retry.len()])).await.unwrap();

        // Between the hellos come a compatibility record and early data of the first hello.
        let between = [&[20, 3, 3, 0, 1, 1][..], &[23, 3, 3, 0, 2, 7, 7]].concat();
        let hello = origin::hello(Some(second));
        client.write_all(&[&between[..], &hello, b"after"].concat()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut arrived = Vec::new();
        soon(host.read_to_end(&mut arrived)).await.unwrap();
        if passes {
            assert_eq!(arrived, [&between[..], &hello, b"after"].concat());
        } else {
            assert_eq!(arrived, between);
            let data = sandbox.record("egress.denied").await;
            assert!(data["rule"].as_str().unwrap().contains("TLS server name `evil.example.com`"), "{data}");
        }
    }
}

/// Returns a HelloRetryRequest: a ServerHello with the random value of RFC 8446.
fn retry_request() -> Vec<u8> {
    let random = "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c";
    let random = (0..32).map(|at| u8::from_str_radix(&random[2 * at..2 * at + 2], 16).unwrap());
    let body: Vec<u8> = [3, 3].into_iter().chain(random).chain([0, 0x13, 1, 0, 0, 0]).collect();
    let length = u8::try_from(body.len()).unwrap();
    [&[22, 3, 3, 0, length + 4, 2, 0, 0, length][..], &body].concat()
}

#[tokio::test]
async fn missing_hello_times_out() {
    let sandbox = sandbox(EgressLimits { head_timeout: Duration::from_millis(500), ..EgressLimits::default() });
    origin::echo(&sandbox.network, "203.0.113.10:443").await;
    let mut stream = tunnel(&sandbox, NAME).await;
    stream.write_all(&origin::hello(Some(NAME))[..20]).await.unwrap();
    let response = ProxyResponse::read(stream).await;
    assert!(response.bytes.is_empty() || response.bytes == TLS_DENIED, "{response:?}");
    assert_eq!(sandbox.record("egress.allowed").await["bytes"], 0);
}

#[tokio::test]
async fn idle_tunnel_is_closed() {
    let sandbox = sandbox(EgressLimits { idle_timeout: Duration::from_millis(100), ..EgressLimits::default() });
    origin::echo(&sandbox.network, "203.0.113.10:443").await;
    let mut stream = tunnel(&sandbox, NAME).await;
    stream.write_all(&origin::hello(Some(NAME))).await.unwrap();
    ProxyResponse::read(stream).await;
    let data = sandbox.record("egress.allowed").await;
    assert_eq!(data["error"], "closed: idle for too long");
}

#[tokio::test]
async fn close_ends_connections_and_records_them() {
    let sandbox = sandbox(EgressLimits::default());
    origin::echo(&sandbox.network, "203.0.113.10:443").await;
    let mut stream = tunnel(&sandbox, NAME).await;
    let hello = origin::hello(Some(NAME));
    stream.write_all(&hello).await.unwrap();
    soon(stream.read_exact(&mut vec![0; hello.len()])).await.unwrap();
    let proxy = sandbox.proxy;
    let records = sandbox.close().await;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].1["bytes"], 2 * hello.len());
    assert!(ProxyResponse::read(stream).await.bytes.is_empty());
    assert!(TcpStream::connect(proxy).await.is_err());
}

#[tokio::test]
async fn drop_ends_connections_and_records_them() {
    let sandbox = sandbox(EgressLimits::default());
    origin::echo(&sandbox.network, "203.0.113.10:443").await;
    let mut stream = tunnel(&sandbox, NAME).await;
    let hello = origin::hello(Some(NAME));
    stream.write_all(&hello).await.unwrap();
    soon(stream.read_exact(&mut vec![0; hello.len()])).await.unwrap();
    assert_eq!(sandbox.abandon().await["bytes"], 2 * hello.len());
    assert!(ProxyResponse::read(stream).await.bytes.is_empty());
}

#[tokio::test]
async fn other_socks_commands_are_rejected() {
    let sandbox = sandbox(EgressLimits::default());
    for (how, request, code) in [
        ("BIND", &b"\x05\x01\x00\x05\x02\x00\x03\x11files.example.com\x01\xbb"[..], 7),
        ("UDP ASSOCIATE", b"\x05\x01\x00\x05\x03\x00\x03\x11files.example.com\x01\xbb", 7),
        ("an address of no kind", b"\x05\x01\x00\x05\x01\x00\x02\x11files.example.com\x01\xbb", 8),
    ] {
        let response = sandbox.send(request).await;
        assert_eq!(response.bytes[..4], [5, 0, 5, code], "{how}");
    }
    assert_eq!(sandbox.send(b"\x05\x01\x02").await.bytes, [5, 0xff]);
    assert!(sandbox.send(b"\x04\x01\x01\xbb\xcb\x00\x71\x0a\x00").await.bytes.starts_with(b"\x00\x5b"));
    assert!(sandbox.network.called().is_empty());
}
