//! Raw tunnels: any protocol, only to the host and port of the rule, and only while the rule holds.

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    support::{ProxyResponse, Sandbox, allowing, read_head, soon},
    test_network::TestNetwork,
};

const NAME: &str = "db.example.com";
const GREETING: &[u8] = b"220 ready\r\n";

/// Runs a host that speaks first and then echoes.
async fn database(network: &TestNetwork) {
    network.name(NAME, &["203.0.113.10"]);
    let listener = network.host("203.0.113.10:5432").await;
    network.run(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut reader, mut writer) = stream.split();
            let _ = writer.write_all(GREETING).await;
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
        }
    });
}

/// Opens a tunnel with CONNECT.
async fn connected(sandbox: &Sandbox) -> TcpStream {
    let mut stream = sandbox.connect().await;
    stream.write_all(b"CONNECT db.example.com:5432 HTTP/1.1\r\nHost: db.example.com\r\n\r\n").await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
    stream
}

/// Opens a tunnel with SOCKS5.
async fn socks(sandbox: &Sandbox) -> TcpStream {
    let mut stream = sandbox.connect().await;
    stream.write_all(b"\x05\x01\x00\x05\x01\x00\x03\x0edb.example.com\x15\x38").await.unwrap();
    let mut reply = [0; 12];
    soon(stream.read_exact(&mut reply)).await.unwrap();
    assert_eq!(reply[..4], [5, 0, 5, 0]);
    stream
}

async fn greeted(mut stream: TcpStream) -> TcpStream {
    let mut greeting = vec![0; GREETING.len()];
    soon(stream.read_exact(&mut greeting)).await.unwrap();
    assert_eq!(greeting, GREETING);
    stream.write_all(b"select 1").await.unwrap();
    let mut echo = [0; 8];
    soon(stream.read_exact(&mut echo)).await.unwrap();
    assert_eq!(&echo, b"select 1");
    stream
}

#[tokio::test]
async fn raw_rule_allows_any_protocol_and_a_host_that_speaks_first() {
    let sandbox = Sandbox::new(allowing(&["raw db.example.com:5432"]));
    database(&sandbox.network).await;
    drop(greeted(connected(&sandbox).await).await);
    let data = sandbox.record("egress.allowed").await;
    assert_eq!(data["rule"], json!(r#"net.allowlist: "raw db.example.com:5432" (sandbox.policy.yaml:4)"#));
    assert_eq!((&data["host"], &data["port"], &data["method"]), (&json!(NAME), &json!(5432), &json!("CONNECT")));
    assert_eq!((&data["bytes"], &data["bytes_sent"]), (&json!(GREETING.len() + 16), &json!(8)));
}

#[tokio::test]
async fn raw_rule_applies_to_socks() {
    let sandbox = Sandbox::new(allowing(&["raw db.example.com:5432"]));
    database(&sandbox.network).await;
    drop(greeted(socks(&sandbox).await).await);
    assert_eq!(sandbox.record("egress.allowed").await["method"], json!("SOCKS5"));
}

#[tokio::test]
async fn without_raw_only_tls_is_forwarded() {
    let sandbox = Sandbox::new(allowing(&["db.example.com:5432", "raw other.example.com:5432"]));
    database(&sandbox.network).await;
    let mut stream = connected(&sandbox).await;
    stream.write_all(b"select 1").await.unwrap();
    let response = ProxyResponse::read(stream).await;
    assert!(!response.text().contains("220"), "{response:?}");
    let data = sandbox.record("egress.denied").await;
    assert!(data["rule"].as_str().unwrap().contains("TLS"), "{data}");
}

#[tokio::test]
async fn raw_applies_only_to_its_host_and_port() {
    let sandbox = Sandbox::new(allowing(&["raw db.example.com:5432"]));
    database(&sandbox.network).await;
    for to in ["db.example.com:443", "db.example.com:5433", "x.db.example.com:5432", "203.0.113.10:5432"] {
        let response = sandbox.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
        assert_eq!(response.status(), Some(403), "{to}");
    }
    // A name with a private address is refused as always.
    sandbox.network.name(NAME, &["10.0.0.7"]);
    let response = sandbox.send("CONNECT db.example.com:5432 HTTP/1.1\r\nHost: db.example.com\r\n\r\n").await;
    assert_eq!((response.status(), sandbox.network.called()), (Some(403), vec![]));
}

/// Returns the recorded error of an open tunnel when the policy changes to `hosts`.
async fn error_after_change_to(hosts: &[&str], tunnel: impl AsyncFn(&Sandbox) -> TcpStream) -> String {
    let sandbox = Sandbox::new(allowing(&["raw db.example.com:5432"]));
    database(&sandbox.network).await;
    let stream = greeted(tunnel(&sandbox).await).await;
    sandbox.policy.replace(allowing(&["raw db.example.com:5432", "other.example.com:443"]));
    sandbox.policy.replace(allowing(hosts));
    let data = sandbox.record("egress.allowed").await;
    assert_eq!(ProxyResponse::read(stream).await.text(), "");
    data["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn raw_tunnel_is_closed_when_the_policy_no_longer_allows_it() {
    let closed = "closed: the policy now says net.allowlist";
    for hosts in [&["other.example.com:443"][..], &["db.example.com:5432"]] {
        // The second one still allows the host, but only TLS.
        assert!(error_after_change_to(hosts, connected).await.starts_with(closed), "{hosts:?}");
        assert!(error_after_change_to(hosts, socks).await.starts_with(closed), "{hosts:?}");
    }
}
