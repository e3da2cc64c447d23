//! TLS that is opened: each request in it is judged, and what is attacked in the clear is attacked here too.

use policy::{NarrowingLayer, PolicySource};
use tokio::io::AsyncWriteExt as _;

use crate::{
    origin::{self, Seen, Trust, certified},
    support::{Answer, Sandbox, policy, read_head, soon},
};

const NAME: &str = "api.example.com";
const ADDRESS: &str = "203.0.113.20:443";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn opened(rules: &[&str]) -> policy::EffectivePolicy {
    policy(&format!("net:\n  enabled: true\n  allowlist: {rules:?}\n  intercept: [{NAME}]\n"))
}

/// A session whose TLS to one host is opened, and that host.
async fn scene(rules: &[&str]) -> (Sandbox, Seen) {
    scene_under(opened(rules)).await
}

async fn scene_under(policy: policy::EffectivePolicy) -> (Sandbox, Seen) {
    let (acceptor, root) = certified(NAME, rustls::crypto::ring::default_provider());
    let sandbox = Sandbox::opening(policy, &root);
    sandbox.world.name(NAME, &["203.0.113.20"]);
    let seen = origin::https(&sandbox.world, ADDRESS, acceptor, OK).await;
    (sandbox, seen)
}

/// Whom a program inside trusts.
fn inside(sandbox: &Sandbox) -> Trust {
    Trust::of(sandbox.authority.as_ref().unwrap().certificate())
}

async fn tunnel(sandbox: &Sandbox, name: &str) -> tokio::net::TcpStream {
    let mut stream = sandbox.connect().await;
    stream.write_all(format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n").as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    stream
}

/// Says something in TLS to the host, through the proxy.
async fn say(sandbox: &Sandbox, bytes: impl AsRef<[u8]>) -> Answer {
    let mut stream = soon(inside(sandbox).speak(tunnel(sandbox, NAME).await, NAME)).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    stream.flush().await.unwrap();
    Answer::read(stream).await
}

async fn ask(sandbox: &Sandbox, method: &str, path: &str) -> Option<u16> {
    say(sandbox, format!("{method} {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await.status()
}

#[tokio::test]
async fn a_request_that_is_listed_goes_to_the_host_and_is_on_record() {
    let (sandbox, seen) = scene(&["GET api.example.com/v1/**"]).await;
    let answer = say(&sandbox, "GET /v1/a?token=x HTTP/1.1\r\nHost: api.example.com\r\nX-A: b\r\n\r\n").await;
    assert_eq!((answer.status(), answer.body().as_str()), (Some(200), "ok"));
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
async fn only_the_methods_and_paths_of_a_rule_leave() {
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
        // Without a rule about requests each of them is sent: what stops them is the rule.
        assert_eq!(ask(&unlisted, method, path).await, Some(200), "{method} {path}");
        assert_eq!(ask(&listed, method, path).await, Some(403), "{method} {path}");
    }
    assert!(listed.world.looked_up().is_empty() && seen.now().is_empty());
    let records = listed.close().await;
    assert!(records.iter().all(|(kind, data)| kind == "egress.denied" && data["path"].is_string()), "{records:?}");
}

#[tokio::test]
async fn what_is_refused_is_said_in_words_inside_tls() {
    let (sandbox, _) = scene(&["GET api.example.com/v1/**"]).await;
    let answer = say(&sandbox, "DELETE /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await;
    assert_eq!(answer.status(), Some(403));
    assert!(answer.body().contains("sandbox.policy.yaml:4"), "{}", answer.body());
    assert!(answer.body().contains("what to do: add the path, or \"DELETE api.example.com:443\""), "{}", answer.body());
}

#[tokio::test]
async fn a_tunnel_to_one_name_is_not_used_for_another() {
    let (sandbox, seen) = scene(&[NAME, "other.example.com"]).await;
    for hello in [origin::hello(Some("other.example.com")), origin::hello(None), b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let mut stream = tunnel(&sandbox, NAME).await;
        stream.write_all(&hello).await.unwrap();
        let answer = Answer::read(stream).await;
        assert!(answer.bytes.starts_with(&[21, 3, 3, 0, 2, 2, 49]) || answer.status() == Some(403), "{answer:?}");
    }
    assert!(sandbox.world.looked_up().is_empty() && seen.now().is_empty());
    let records = sandbox.close().await;
    assert!(records.len() == 3 && records.iter().all(|(kind, _)| kind == "egress.denied"), "{records:?}");
}

#[tokio::test]
async fn a_certificate_is_for_the_host_of_the_tunnel_alone() {
    let (sandbox, _) = scene(&[NAME]).await;
    // Speaking to the right name works, so it is the name that is missed below.
    assert!(inside(&sandbox).speak(tunnel(&sandbox, NAME).await, NAME).await.is_ok());
    let config = policy("net: {enabled: true, allowlist: ['*'], intercept: ['*']}\n");
    let (wide, _) = scene_under(config).await;
    let mut stream = tunnel(&wide, "other.example.com").await;
    stream.write_all(&origin::hello(Some(NAME))).await.unwrap();
    assert_eq!(Answer::read(stream).await.bytes, [21, 3, 3, 0, 2, 2, 49]);
}

#[tokio::test]
async fn the_authority_of_a_session_is_trusted_in_no_other_and_by_no_host() {
    let (one, _) = scene(&[NAME]).await;
    let (other, _) = scene(&[NAME]).await;
    assert!(inside(&one).speak(tunnel(&one, NAME).await, NAME).await.is_ok());
    let foreign = inside(&other).speak(tunnel(&one, NAME).await, NAME).await;
    assert!(foreign.unwrap_err().to_string().contains("invalid peer certificate"));
    let failed = one.record("egress.allowed").await;
    assert!(failed["error"].as_str().unwrap().contains("the client did not go on"), "{failed}");
    let bundle = one.authority.as_ref().unwrap().bundle();
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(!bundle.contains("PRIVATE KEY"));
}

#[tokio::test]
async fn nothing_is_sent_to_a_host_that_is_not_who_it_should_be() {
    let (_, root) = certified(NAME, rustls::crypto::ring::default_provider());
    let (impostor, _) = certified(NAME, rustls::crypto::ring::default_provider());
    let (wildcard, other_root) = certified("*.example.org", rustls::crypto::ring::default_provider());
    for (acceptor, trusted) in [(impostor, &root), (wildcard, &other_root)] {
        let sandbox = Sandbox::opening(opened(&[NAME]), trusted);
        sandbox.world.name(NAME, &["203.0.113.20"]);
        let seen = origin::https(&sandbox.world, ADDRESS, acceptor, OK).await;
        let answer = say(&sandbox, "GET /secret HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await;
        assert_eq!(answer.status(), Some(502));
        assert!(answer.body().contains("nothing was sent to it (invalid peer certificate"), "{}", answer.body());
        assert!(seen.now().is_empty());
    }
}

#[tokio::test]
async fn a_request_that_can_be_read_in_two_ways_is_refused_in_tls_too() {
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
        assert_eq!(say(&sandbox, &attack).await.status(), Some(400), "{attack}");
    }
    assert!(seen.now().is_empty());
    assert_eq!(ask(&sandbox, "GET", "/").await, Some(200));
}

#[tokio::test]
async fn a_second_request_on_the_connection_is_not_sent() {
    let (sandbox, seen) = scene(&["GET api.example.com/v1/**"]).await;
    let first = "GET /v1/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n";
    for second in
        ["GET /v2 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "GET /v1/b HTTP/1.1\r\nHost: other.example.com\r\n\r\n"]
    {
        assert_eq!(say(&sandbox, [first, second].concat()).await.text().matches("HTTP/1.1 200").count(), 1);
    }
    let alone = "GET /v1/a HTTP/1.1\r\nhost: api.example.com\r\nconnection: close\r\n\r\n";
    assert_eq!(seen.now(), [alone, alone]);
}

#[tokio::test]
async fn another_protocol_than_http_1_is_not_agreed_on() {
    let (sandbox, _) = scene(&[NAME]).await;
    let trust = inside(&sandbox);
    let both = trust.speak_for(tunnel(&sandbox, NAME).await, NAME, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(both.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(trust.speak_for(tunnel(&sandbox, NAME).await, NAME, &[b"h2"]).await.is_err());
}

#[tokio::test]
async fn a_host_whose_tls_is_opened_is_not_spoken_to_in_the_clear() {
    let (sandbox, _) = scene(&["api.example.com:*"]).await;
    let plain = |port: u16| format!("GET http://{NAME}:{port}/ HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n");
    let answer = sandbox.say(plain(443)).await;
    assert_eq!(answer.status(), Some(403));
    assert!(answer.body().contains("net.intercept"), "{}", answer.body());
    assert!(sandbox.world.called().is_empty());
    // Another port of it is not opened, and is served as ever.
    origin::http(&sandbox.world, "203.0.113.20:80", OK).await;
    assert_eq!(sandbox.say(plain(80)).await.status(), Some(200));
}

#[tokio::test]
async fn socks_leads_into_the_same_tunnel() {
    let (sandbox, seen) = scene(&["GET api.example.com/v1/**"]).await;
    for (path, expected) in [("/v1/a", 200), ("/v2", 403)] {
        let mut stream = sandbox.connect().await;
        stream.write_all(b"\x05\x01\x00\x05\x01\x00\x03\x0fapi.example.com\x01\xbb").await.unwrap();
        let mut replies = [0; 12];
        soon(tokio::io::AsyncReadExt::read_exact(&mut stream, &mut replies)).await.unwrap();
        assert_eq!(replies[..4], [5, 0, 5, 0]);
        let mut stream = soon(inside(&sandbox).speak(stream, NAME)).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(Answer::read(stream).await.status(), Some(expected));
    }
    assert_eq!(seen.now().len(), 1);
}

#[tokio::test]
async fn a_session_that_began_without_it_reaches_nothing_where_tls_is_opened_later() {
    let sandbox = Sandbox::new(policy("net: {enabled: true, allowlist: [api.example.com]}\n"));
    sandbox.world.name(NAME, &["203.0.113.20"]);
    origin::echo(&sandbox.world, ADDRESS).await;
    let mut running = tunnel(&sandbox, NAME).await;
    running.write_all(&origin::hello(Some(NAME))).await.unwrap();
    let narrowing =
        NarrowingLayer::read(&PolicySource::new("session", "net: {intercept: [api.example.com]}\n")).unwrap();
    sandbox.policy.replace(sandbox.policy.current().restricted_by(&narrowing));
    Answer::read(running).await;
    let cut = sandbox.record("egress.allowed").await;
    assert!(cut["error"].as_str().unwrap().contains("net.intercept"), "{cut}");
    let answer = sandbox.say("CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n").await;
    assert_eq!(answer.status(), Some(403));
    assert!(answer.body().contains("this session began without that"), "{}", answer.body());
}
