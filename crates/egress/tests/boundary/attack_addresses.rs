//! Allowed names that lead where nobody may go.

use crate::{
    origin,
    support::{Answer, Sandbox, allowing, read_head, soon},
};
use egress::EgressLimits;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

const NAME: &str = "files.example.com";
const REQUEST: &str = "GET http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Addresses that are not of the public internet.
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
    origin::http(&sandbox.world, "203.0.113.10:80", OK).await;
    sandbox
}

#[tokio::test]
async fn an_allowed_name_at_an_inner_address_is_not_called() {
    let sandbox = sandbox().await;
    for address in FORBIDDEN {
        sandbox.world.name(NAME, &[address]);
        let answer = sandbox.say(REQUEST).await;
        assert_eq!(answer.status(), Some(403), "{address}");
        assert!(answer.body().contains("where:      built-in:"), "{address}: {}", answer.body());
    }
    assert_eq!(sandbox.world.called(), Vec::<String>::new());
    sandbox.world.name(NAME, &["203.0.113.10"]);
    assert_eq!(sandbox.say(REQUEST).await.status(), Some(200));
}

#[tokio::test]
async fn an_address_of_the_host_itself_is_not_called_though_it_is_public() {
    let sandbox = sandbox().await;
    sandbox.world.name(NAME, &["203.0.113.10"]);
    sandbox.world.own("203.0.113.10");
    let answer = sandbox.say(REQUEST).await;
    assert_eq!(answer.status(), Some(403));
    assert!(answer.body().contains("`203.0.113.10` is an address of the host itself"));
    assert!(sandbox.world.called().is_empty());
}

#[tokio::test]
async fn of_several_addresses_only_public_ones_are_called() {
    let sandbox = sandbox().await;
    sandbox.world.name(NAME, &["10.0.0.1", "203.0.113.9", "::1", "203.0.113.10"]);
    assert_eq!(sandbox.say(REQUEST).await.status(), Some(200));
    // The first of the two does not answer.
    assert_eq!(sandbox.world.called(), ["203.0.113.9:80", "203.0.113.10:80"]);
    assert_eq!(sandbox.record("egress.allowed").await["address"], "203.0.113.10:80");
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_called_where_it_was_judged() {
    let sandbox = sandbox().await;
    sandbox.world.name(NAME, &["203.0.113.10"]);
    assert_eq!(sandbox.say(REQUEST).await.status(), Some(200));
    sandbox.world.name(NAME, &["127.0.0.1"]);
    assert_eq!(sandbox.say(REQUEST).await.status(), Some(403));
    // One look at the name for each request, and no call that was not judged.
    assert_eq!(sandbox.world.looked_up(), [NAME, NAME]);
    assert_eq!(sandbox.world.called(), ["203.0.113.10:80"]);
}

#[tokio::test]
async fn a_redirect_is_handed_to_the_client_and_is_a_new_question() {
    let sandbox = Sandbox::new(allowing(&["files.example.com:80"]));
    sandbox.world.name(NAME, &["203.0.113.10"]);
    let moved = "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data\r\nContent-Length: 0\r\n\r\n";
    origin::http(&sandbox.world, "203.0.113.10:80", moved).await;
    assert_eq!(sandbox.say(REQUEST).await.status(), Some(302));
    let next = "GET http://169.254.169.254/latest/meta-data HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n";
    assert_eq!(sandbox.say(next).await.status(), Some(403));
    assert_eq!(sandbox.world.called(), ["203.0.113.10:80"]);
}

#[tokio::test]
async fn what_a_session_may_reach_can_shrink_while_it_runs() {
    let sandbox = sandbox().await;
    sandbox.world.name(NAME, &["203.0.113.10"]);
    origin::echo(&sandbox.world, "203.0.113.10:443").await;
    let mut stream = sandbox.connect().await;
    stream.write_all(b"CONNECT files.example.com:443 HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await.unwrap();
    read_head(&mut stream).await;
    stream.write_all(&origin::hello(Some(NAME))).await.unwrap();

    // Another policy that still allows it changes nothing.
    sandbox.policy.replace(allowing(&["files.example.com:443", "other.example.com:443"]));
    sandbox.policy.replace(allowing(&["files.example.com:80"]));
    let data = sandbox.record("egress.allowed").await;
    let error = "cut: the policy now says net.allowlist has 1 entry, none match (sandbox.policy.yaml:4)";
    assert_eq!(data["error"], json!(error));
    Answer::read(stream).await;
    let again = sandbox.say("CONNECT files.example.com:443 HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await;
    assert_eq!(again.status(), Some(403));
}

#[tokio::test]
async fn one_session_does_not_take_all_lookups() {
    let limits = EgressLimits { lookups: 2, ..EgressLimits::default() };
    let sandbox = Sandbox::limited(allowing(&["*:80"]), limits);
    sandbox.world.hold_lookups(true);
    let ask = |number: u8| {
        let request = format!("GET http://h{number}.example.com/ HTTP/1.1\r\nHost: h{number}.example.com\r\n\r\n");
        let sandbox = &sandbox;
        async move { sandbox.say(request).await.status() }
    };
    let release = async {
        soon(sandbox.world.lookups_running(2)).await;
        sandbox.world.hold_lookups(false);
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all((1..=5).map(ask)), release);
    // Nobody has these names, which is told once they were looked up.
    assert_eq!(answers, [Some(502); 5]);
    assert_eq!((sandbox.world.looked_up().len(), sandbox.world.most_lookups()), (5, 2));
}
