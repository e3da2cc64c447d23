//! Tunnels that a rule says are `raw`: anything goes through them, to that host and port alone, for as long as the rule
//! stands.

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    support::{Answer, Sandbox, allowing, read_head, soon},
    world::World,
};

const NAME: &str = "db.example.com";
const GREETING: &[u8] = b"220 who is it\r\n";

/// A host that speaks first, and then sends back what it is sent.
async fn database(world: &World) {
    world.name(NAME, &["203.0.113.10"]);
    let listener = world.host("203.0.113.10:5432").await;
    world.run(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut reader, mut writer) = stream.split();
            let _ = writer.write_all(GREETING).await;
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
        }
    });
}

/// A tunnel by CONNECT, once it stands.
async fn connected(sandbox: &Sandbox) -> TcpStream {
    let mut stream = sandbox.connect().await;
    stream.write_all(b"CONNECT db.example.com:5432 HTTP/1.1\r\nHost: db.example.com\r\n\r\n").await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
    stream
}

/// The same by SOCKS5.
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
async fn a_rule_that_says_raw_lets_anything_through_and_whoever_speaks_first() {
    let sandbox = Sandbox::new(allowing(&["raw db.example.com:5432"]));
    database(&sandbox.world).await;
    drop(greeted(connected(&sandbox).await).await);
    let data = sandbox.record("egress.allowed").await;
    assert_eq!(data["rule"], json!(r#"net.allowlist: "raw db.example.com:5432" (sandbox.policy.yaml:4)"#));
    assert_eq!((&data["host"], &data["port"], &data["method"]), (&json!(NAME), &json!(5432), &json!("CONNECT")));
    assert_eq!((&data["bytes"], &data["bytes_sent"]), (&json!(GREETING.len() + 16), &json!(8)));
}

#[tokio::test]
async fn socks_goes_the_same_way() {
    let sandbox = Sandbox::new(allowing(&["raw db.example.com:5432"]));
    database(&sandbox.world).await;
    drop(greeted(socks(&sandbox).await).await);
    assert_eq!(sandbox.record("egress.allowed").await["method"], json!("SOCKS5"));
}

#[tokio::test]
async fn without_the_word_nothing_but_tls_goes_through() {
    let sandbox = Sandbox::new(allowing(&["db.example.com:5432", "raw other.example.com:5432"]));
    database(&sandbox.world).await;
    let mut stream = connected(&sandbox).await;
    stream.write_all(b"select 1").await.unwrap();
    let answer = Answer::read(stream).await;
    assert!(!answer.text().contains("220"), "{answer:?}");
    let data = sandbox.record("egress.denied").await;
    assert!(data["rule"].as_str().unwrap().contains("TLS"), "{data}");
}

#[tokio::test]
async fn raw_is_for_that_host_and_port_alone() {
    let sandbox = Sandbox::new(allowing(&["raw db.example.com:5432"]));
    database(&sandbox.world).await;
    for to in ["db.example.com:443", "db.example.com:5433", "x.db.example.com:5432", "203.0.113.10:5432"] {
        let answer = sandbox.say(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
        assert_eq!(answer.status(), Some(403), "{to}");
    }
    // A name that leads somewhere private is refused as ever.
    sandbox.world.name(NAME, &["10.0.0.7"]);
    let answer = sandbox.say("CONNECT db.example.com:5432 HTTP/1.1\r\nHost: db.example.com\r\n\r\n").await;
    assert_eq!((answer.status(), sandbox.world.called()), (Some(403), vec![]));
}

/// What becomes of a tunnel that stands when the policy becomes `hosts`.
async fn cut_when(hosts: &[&str], tunnel: impl AsyncFn(&Sandbox) -> TcpStream) -> String {
    let sandbox = Sandbox::new(allowing(&["raw db.example.com:5432"]));
    database(&sandbox.world).await;
    let stream = greeted(tunnel(&sandbox).await).await;
    sandbox.policy.replace(allowing(&["raw db.example.com:5432", "other.example.com:443"]));
    sandbox.policy.replace(allowing(hosts));
    let data = sandbox.record("egress.allowed").await;
    assert_eq!(Answer::read(stream).await.text(), "");
    data["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_raw_tunnel_is_cut_when_the_policy_no_longer_allows_it() {
    let cut = "cut: the policy now says net.allowlist";
    for hosts in [&["other.example.com:443"][..], &["db.example.com:5432"]] {
        // The second still allows the host, but nothing raw.
        assert!(cut_when(hosts, connected).await.starts_with(cut), "{hosts:?}");
        assert!(cut_when(hosts, socks).await.starts_with(cut), "{hosts:?}");
    }
}
