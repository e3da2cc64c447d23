//! Attacks with allowed names that resolve to forbidden addresses.

use crate::{
    origin,
    support::{ProxyResponse, Sandbox, allowing, read_head, soon},
};
use egress::EgressLimits;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

const NAME: &str = "files.example.com";
const REQUEST: &str = "GET http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Addresses outside the public internet.
const FORBIDDEN: [&str; 31] = [
    "127.0.0.1",
    "127.1.2.3",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "100.64.0.1",
    "100.127.255.254",
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "64:ff9b::a00:1",
    "2002:a00:1::1",
    "2001:0:a00:1::",
    "fe80::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
];

async fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new(allowing(&["files.example.com:80", "files.example.com:443"]));
    origin::http(&sandbox.network, "203.0.113.10:80", OK).await;
    sandbox
}

#[tokio::test]
async fn allowed_name_with_a_private_address_is_refused() {
    let sandbox = sandbox().await;
    for address in FORBIDDEN {
        sandbox.network.name(NAME, &[address]);
        let response = sandbox.send(REQUEST).await;
        assert_eq!(response.status(), Some(403), "{address}");
        assert!(response.body().contains("where:      built-in:"), "{address}: {}", response.body());
    }
    assert_eq!(sandbox.network.called(), Vec::<String>::new());
    sandbox.network.name(NAME, &["203.0.113.10"]);
    assert_eq!(sandbox.send(REQUEST).await.status(), Some(200));
}

#[tokio::test]
async fn public_address_of_the_host_itself_is_refused() {
    let sandbox = sandbox().await;
    sandbox.network.name(NAME, &["203.0.113.10"]);
    sandbox.network.own("203.0.113.10");
    let response = sandbox.send(REQUEST).await;
    assert_eq!(response.status(), Some(403));
    assert!(response.body().contains("`203.0.113.10` is an address of the host itself"));
    assert!(sandbox.network.called().is_empty());
}

#[tokio::test]
async fn only_public_addresses_are_tried() {
    let sandbox = sandbox().await;
    sandbox.network.name(NAME, &["10.0.0.1", "203.0.113.9", "::1", "203.0.113.10"]);
    assert_eq!(sandbox.send(REQUEST).await.status(), Some(200));
    // The first of the two refuses connections.
    assert_eq!(sandbox.network.called(), ["203.0.113.9:80", "203.0.113.10:80"]);
    assert_eq!(sandbox.record("egress.allowed").await["address"], "203.0.113.10:80");
}

#[tokio::test]
async fn dns_rebinding_does_not_bypass_the_address_check() {
    let sandbox = sandbox().await;
    sandbox.network.name(NAME, &["203.0.113.10"]);
    assert_eq!(sandbox.send(REQUEST).await.status(), Some(200));
    sandbox.network.name(NAME, &["127.0.0.1"]);
    assert_eq!(sandbox.send(REQUEST).await.status(), Some(403));
    // One lookup per request, and only checked addresses are called.
    assert_eq!(sandbox.network.looked_up(), [NAME, NAME]);
    assert_eq!(sandbox.network.called(), ["203.0.113.10:80"]);
}

#[tokio::test]
async fn redirect_goes_to_the_client_and_needs_a_new_decision() {
    let sandbox = Sandbox::new(allowing(&["files.example.com:80"]));
    sandbox.network.name(NAME, &["203.0.113.10"]);
    let moved = "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data\r\nContent-Length: 0\r\n\r\n";
    origin::http(&sandbox.network, "203.0.113.10:80", moved).await;
    assert_eq!(sandbox.send(REQUEST).await.status(), Some(302));
    let next = "GET http://169.254.169.254/latest/meta-data HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n";
    assert_eq!(sandbox.send(next).await.status(), Some(403));
    assert_eq!(sandbox.network.called(), ["203.0.113.10:80"]);
}

#[tokio::test]
async fn connection_is_closed_when_the_policy_is_narrowed() {
    let sandbox = sandbox().await;
    sandbox.network.name(NAME, &["203.0.113.10"]);
    origin::echo(&sandbox.network, "203.0.113.10:443").await;
    let mut stream = sandbox.connect().await;
    stream.write_all(b"CONNECT files.example.com:443 HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await.unwrap();
    read_head(&mut stream).await;
    stream.write_all(&origin::hello(Some(NAME))).await.unwrap();

    // A new policy that still allows the host changes nothing.
    sandbox.policy.replace(allowing(&["files.example.com:443", "other.example.com:443"]));
    sandbox.policy.replace(allowing(&["files.example.com:80"]));
    let data = sandbox.record("egress.allowed").await;
    let error = "closed: the policy now says net.allowlist has 1 entry, none match (sandbox.policy.yaml:4)";
    assert_eq!(data["error"], json!(error));
    ProxyResponse::read(stream).await;
    let again = sandbox.send("CONNECT files.example.com:443 HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await;
    assert_eq!(again.status(), Some(403));
}

#[tokio::test]
async fn lookups_of_one_session_are_limited() {
    let limits = EgressLimits { lookups: 2, ..EgressLimits::default() };
    let sandbox = Sandbox::limited(allowing(&["*:80"]), limits);
    sandbox.network.hold_lookups(true);
    let ask = |number: u8| {
        let request = format!("GET http://h{number}.example.com/ HTTP/1.1\r\nHost: h{number}.example.com\r\n\r\n");
        let sandbox = &sandbox;
        async move { sandbox.send(request).await.status() }
    };
    let release = async {
        soon(sandbox.network.lookups_running(2)).await;
        sandbox.network.hold_lookups(false);
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all((1..=5).map(ask)), release);
    // These names do not exist, which the client learns after the lookup.
    assert_eq!(answers, [Some(502); 5]);
    assert_eq!((sandbox.network.looked_up().len(), sandbox.network.most_lookups()), (5, 2));
}
