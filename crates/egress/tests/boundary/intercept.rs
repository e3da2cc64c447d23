//! Intercepted TLS: each request is decided, and the attacks on plain HTTP are repeated inside TLS.

use policy::{NarrowingLayer, PolicySource};
use tokio::io::AsyncWriteExt as _;

use crate::{
    origin::{self, Seen, Trust, certified},
    support::{ProxyResponse, Sandbox, policy, read_head, soon},
};

const NAME: &str = "api.example.com";
const ADDRESS: &str = "203.0.113.20:443";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn intercepted(rules: &[&str]) -> policy::EffectivePolicy {
    policy(&format!("net:\n  enabled: true\n  allowlist: {rules:?}\n  intercept: [{NAME}]\n"))
}

/// Starts a session that intercepts TLS to one host, and that host.
async fn scene(rules: &[&str]) -> (Sandbox, Seen) {
    scene_under(intercepted(rules)).await
}

async fn scene_under(policy: policy::EffectivePolicy) -> (Sandbox, Seen) {
    let (acceptor, root) = certified(NAME, rustls::crypto::ring::default_provider());
    let sandbox = Sandbox::intercepting(policy, &root);
    sandbox.network.name(NAME, &["203.0.113.20"]);
    let seen = origin::https(&sandbox.network, ADDRESS, acceptor, OK).await;
    (sandbox, seen)
}

/// Returns the roots that a program inside trusts.
fn inside(sandbox: &Sandbox) -> Trust {
    Trust::of(sandbox.session_ca.as_ref().unwrap().certificate())
}

async fn tunnel(sandbox: &Sandbox, name: &str) -> tokio::net::TcpStream {
    let mut stream = sandbox.connect().await;
    stream.write_all(format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n").as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    stream
}

/// Sends `bytes` inside TLS to the host, through the proxy.
async fn send(sandbox: &Sandbox, bytes: impl AsRef<[u8]>) -> ProxyResponse {
    let mut stream = soon(inside(sandbox).connect_tls(tunnel(sandbox, NAME).await, NAME)).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    stream.flush().await.unwrap();
    ProxyResponse::read(stream).await
}

async fn ask(sandbox: &Sandbox, method: &str, path: &str) -> Option<u16> {
    send(sandbox, format!("{method} {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await.status()
}

#[tokio::test]
async fn allowed_request_is_forwarded_and_recorded() {
    let (sandbox, seen) = scene(&["GET api.example.com/v1/**"]).await;
    let response = send(&sandbox, "GET /v1/a?token=x HTTP/1.1\r\nHost: api.example.com\r\nX-A: b\r\n\r\n").await;
    assert_eq!((response.status(), response.body().as_str()), (Some(200), "ok"));
    assert_eq!(
        seen.now(),
        ["GET /v1/a?token=x HTTP/1.1\r\nhost: api.example.com\r\nx-a: b\r\nconnection: close\r\n\r\n"]
    );
    let records = sandbox.close().await;
    let told = |name: &str| records[0].1[name].as_str().unwrap().to_owned();
    assert_eq!((records.len(), records[0].0.as_str()), (1, "egress.allowed"));
    assert_eq!((told("method"), told("path"), told("address")), ("GET".into(), "/v1/a".into(), ADDRESS.into()));
}

#[tokio::test]
async fn only_matching_methods_and_paths_are_forwarded() {
    let (listed, seen) = scene(&["GET api.example.com/v1/**"]).await;
    let (unlisted, _) = scene(&[NAME]).await;
    let attacks = [
        ("POST", "/v1/a"),
        ("GET", "/v2"),
        ("GET", "/v1/../v2"),
        ("GET", "/v1/%2e%2e/v2"),
        ("GET", "/v1/.%2E/v2"),
        ("GET", "/v1/..%2fv2"),
        ("GET", "/v1/..;/v2"),
        ("GET", "/v1//v2"),
        ("GET", "//v1/v2"),
        ("GET", "/v1/%00"),
    ];
    for (method, path) in attacks {
        // Control: without a rule about requests, all of them are sent.
        assert_eq!(ask(&unlisted, method, path).await, Some(200), "{method} {path}");
        assert_eq!(ask(&listed, method, path).await, Some(403), "{method} {path}");
    }
    assert!(listed.network.looked_up().is_empty() && seen.now().is_empty());
    let records = listed.close().await;
    assert!(records.iter().all(|(kind, data)| kind == "egress.denied" && data["path"].is_string()), "{records:?}");
}

#[tokio::test]
async fn refusal_is_sent_inside_tls() {
    let (sandbox, _) = scene(&["GET api.example.com/v1/**"]).await;
    let response = send(&sandbox, "DELETE /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await;
    assert_eq!(response.status(), Some(403));
    assert!(response.body().contains("sandbox.policy.yaml:4"), "{}", response.body());
    assert!(
        response.body().contains("what to do: add the path, or \"DELETE api.example.com:443\""),
        "{}",
        response.body()
    );
}

#[tokio::test]
async fn tunnel_cannot_be_used_for_another_name() {
    let (sandbox, seen) = scene(&[NAME, "other.example.com"]).await;
    for hello in [origin::hello(Some("other.example.com")), origin::hello(None), b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let mut stream = tunnel(&sandbox, NAME).await;
        stream.write_all(&hello).await.unwrap();
        let response = ProxyResponse::read(stream).await;
        assert!(response.bytes.starts_with(&[21, 3, 3, 0, 2, 2, 49]) || response.status() == Some(403), "{response:?}");
    }
    assert!(sandbox.network.looked_up().is_empty() && seen.now().is_empty());
    let records = sandbox.close().await;
    assert!(records.len() == 3 && records.iter().all(|(kind, _)| kind == "egress.denied"), "{records:?}");
}

#[tokio::test]
async fn certificate_is_only_for_the_tunnels_host() {
    let (sandbox, _) = scene(&[NAME]).await;
    // Control: the right name works.
    assert!(inside(&sandbox).connect_tls(tunnel(&sandbox, NAME).await, NAME).await.is_ok());
    let config = policy("net: {enabled: true, allowlist: ['*'], intercept: ['*']}\n");
    let (wide, _) = scene_under(config).await;
    let mut stream = tunnel(&wide, "other.example.com").await;
    stream.write_all(&origin::hello(Some(NAME))).await.unwrap();
    assert_eq!(ProxyResponse::read(stream).await.bytes, [21, 3, 3, 0, 2, 2, 49]);
}

#[tokio::test]
async fn session_ca_is_trusted_only_in_its_own_sandbox() {
    let (one, _) = scene(&[NAME]).await;
    let (other, _) = scene(&[NAME]).await;
    assert!(inside(&one).connect_tls(tunnel(&one, NAME).await, NAME).await.is_ok());
    let foreign = inside(&other).connect_tls(tunnel(&one, NAME).await, NAME).await;
    assert!(foreign.unwrap_err().to_string().contains("invalid peer certificate"));
    let failed = one.record("egress.allowed").await;
    assert!(failed["error"].as_str().unwrap().contains("the client did not accept the intercepted TLS"), "{failed}");
    let ca_bundle = one.session_ca.as_ref().unwrap().ca_bundle();
    assert_eq!(ca_bundle.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(!ca_bundle.contains("PRIVATE KEY"));
}

#[tokio::test]
async fn nothing_is_sent_to_a_host_with_a_wrong_certificate() {
    let (_, root) = certified(NAME, rustls::crypto::ring::default_provider());
    let (impostor, _) = certified(NAME, rustls::crypto::ring::default_provider());
    let (wildcard, other_root) = certified("*.example.org", rustls::crypto::ring::default_provider());
    for (acceptor, trusted) in [(impostor, &root), (wildcard, &other_root)] {
        let sandbox = Sandbox::intercepting(intercepted(&[NAME]), trusted);
        sandbox.network.name(NAME, &["203.0.113.20"]);
        let seen = origin::https(&sandbox.network, ADDRESS, acceptor, OK).await;
        let response = send(&sandbox, "GET /secret HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await;
        assert_eq!(response.status(), Some(502));
        assert!(response.body().contains("nothing was sent (invalid peer certificate"), "{}", response.body());
        assert!(seen.now().is_empty());
    }
}

#[tokio::test]
async fn ambiguous_request_is_refused_inside_tls() {
    let (sandbox, seen) = scene(&[NAME]).await;
    let host = "Host: api.example.com\r\n";
    let attacks = [
        format!("POST / HTTP/1.1\r\n{host}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{host}Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"),
        format!("GET / HTTP/1.1\r\n{host}Host: other.example.com\r\n\r\n"),
        "GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: api.example.com:80\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET https://other.example.com/ HTTP/1.1\r\n{host}\r\n"),
        format!("GET http://api.example.com/ HTTP/1.1\r\n{host}\r\n"),
        format!("CONNECT other.example.com:443 HTTP/1.1\r\n{host}\r\n"),
        format!("GET /a#b HTTP/1.1\r\n{host}\r\n"),
        format!("GET / HTTP/1.1\r\n{host}Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
        format!("GET / HTTP/1.1\n{host}\r\n\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ];
    for attack in attacks {
        assert_eq!(send(&sandbox, &attack).await.status(), Some(400), "{attack}");
    }
    assert!(seen.now().is_empty());
    assert_eq!(ask(&sandbox, "GET", "/").await, Some(200));
}

#[tokio::test]
async fn second_request_on_a_connection_is_not_forwarded() {
    let (sandbox, seen) = scene(&["GET api.example.com/v1/**"]).await;
    let first = "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n";
    for second in
        ["GET /v2 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "GET /v1/b HTTP/1.1\r\nHost: other.example.com\r\n\r\n"]
    {
        assert_eq!(send(&sandbox, [first, second].concat()).await.text().matches("HTTP/1.1 200").count(), 1);
    }
    let alone = "GET /v1/a HTTP/1.1\r\nhost: api.example.com\r\nconnection: close\r\n\r\n";
    assert_eq!(seen.now(), [alone, alone]);
}

#[tokio::test]
async fn only_http_1_is_negotiated() {
    let (sandbox, _) = scene(&[NAME]).await;
    let trust = inside(&sandbox);
    let both = trust.connect_tls_with(tunnel(&sandbox, NAME).await, NAME, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(both.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(trust.connect_tls_with(tunnel(&sandbox, NAME).await, NAME, &[b"h2"]).await.is_err());
}

#[tokio::test]
async fn plain_http_to_an_intercepted_host_is_refused() {
    let (sandbox, _) = scene(&["api.example.com:*"]).await;
    let plain = |port: u16| format!("GET http://{NAME}:{port}/ HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n");
    let response = sandbox.send(plain(443)).await;
    assert_eq!(response.status(), Some(403));
    assert!(response.body().contains("net.intercept"), "{}", response.body());
    assert!(sandbox.network.called().is_empty());
    // Another port of the host is not intercepted and works.
    origin::http(&sandbox.network, "203.0.113.20:80", OK).await;
    assert_eq!(sandbox.send(plain(80)).await.status(), Some(200));
}

#[tokio::test]
async fn socks_tunnel_is_intercepted_too() {
    let (sandbox, seen) = scene(&["GET api.example.com/v1/**"]).await;
    for (path, expected) in [("/v1/a", 200), ("/v2", 403)] {
        let mut stream = sandbox.connect().await;
        stream.write_all(b"\x05\x01\x00\x05\x01\x00\x03\x0fapi.example.com\x01\xbb").await.unwrap();
        let mut replies = [0; 12];
        soon(tokio::io::AsyncReadExt::read_exact(&mut stream, &mut replies)).await.unwrap();
        assert_eq!(replies[..4], [5, 0, 5, 0]);
        let mut stream = soon(inside(&sandbox).connect_tls(stream, NAME)).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(ProxyResponse::read(stream).await.status(), Some(expected));
    }
    assert_eq!(seen.now().len(), 1);
}

#[tokio::test]
async fn session_without_ca_cannot_reach_a_host_intercepted_later() {
    let sandbox = Sandbox::new(policy("net: {enabled: true, allowlist: [api.example.com]}\n"));
    sandbox.network.name(NAME, &["203.0.113.20"]);
    origin::echo(&sandbox.network, ADDRESS).await;
    let mut running = tunnel(&sandbox, NAME).await;
    running.write_all(&origin::hello(Some(NAME))).await.unwrap();
    let narrowing =
        NarrowingLayer::read(&PolicySource::new("session", "net: {intercept: [api.example.com]}\n")).unwrap();
    sandbox.policy.replace(sandbox.policy.current().restricted_by(&narrowing));
    ProxyResponse::read(running).await;
    let cut = sandbox.record("egress.allowed").await;
    assert!(cut["error"].as_str().unwrap().contains("net.intercept"), "{cut}");
    let response = sandbox.send("CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n").await;
    assert_eq!(response.status(), Some(403));
    assert!(response.body().contains("the session started without it"), "{}", response.body());
}
