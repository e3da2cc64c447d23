//! Denials: the response to the client and the record in the journal.

use std::time::Duration;

use egress::EgressLimits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Sandbox, allowing, policy, soon};

/// Returns limits with a window that outlasts the test on any machine.
fn long_window() -> EgressLimits {
    EgressLimits { repeat_window: Duration::from_secs(3600), ..EgressLimits::default() }
}

const CONNECT: &str = "CONNECT evil.example.com:443 HTTP/1.1\r\nHost: evil.example.com:443\r\n\r\n";

#[tokio::test]
async fn disabled_network_denies_everything_and_names_the_rule() {
    let sandbox = Sandbox::new(policy("net:\n  enabled: false\n"));
    let response = sandbox.send(CONNECT).await;
    let rule = "net.enabled: false (sandbox.policy.yaml:3)";
    assert!(response.text().starts_with(&format!("HTTP/1.1 403 Forbidden by sandbox policy: {rule}\r\n")));
    assert_eq!(
        response.body(),
        "viv: `evil.example.com` port 443 is not allowed by the policy of this sandbox\n\n\
         \x20 rule:       net.enabled: false\n\
         \x20 where:      sandbox.policy.yaml:3\n\
         \x20 what to do: set `net.enabled: true` and add \"evil.example.com:443\" under `net.allowlist`\n"
    );
    let (kind, data) = sandbox.records().pop().unwrap();
    assert_eq!(kind, "egress.denied");
    assert_eq!(data, json!({"host": "evil.example.com", "port": 443, "rule": rule, "method": "CONNECT"}));
    assert!(sandbox.network.looked_up().is_empty() && sandbox.network.called().is_empty());
}

#[tokio::test]
async fn empty_allow_list_denies_everything() {
    let sandbox = Sandbox::new(policy("net:\n  enabled: true\n  allowlist: []\n"));
    assert_eq!(sandbox.send(CONNECT).await.status(), Some(403));
    assert!(sandbox.network.looked_up().is_empty());
}

#[tokio::test]
async fn client_that_accepts_json_gets_json() {
    let sandbox = Sandbox::new(allowing(&["packages.example.com:443"]));
    let request = "GET http://evil.example.com/secret?token=x HTTP/1.1\r\nHost: evil.example.com\r\n\
                   Accept: text/html, application/json\r\n\r\n";
    let response = sandbox.send(request).await;
    let problem: Value = serde_json::from_str(&response.body()).unwrap();
    assert_eq!(problem["code"], "policy_denied");
    assert_eq!((&problem["host"], &problem["port"]), (&json!("evil.example.com"), &json!(80)));
    assert_eq!((&problem["file"], &problem["line"]), (&json!("sandbox.policy.yaml"), &json!(4)));
    assert_eq!(problem["hint"], "add \"evil.example.com:80\" under `net.allowlist`");
    let data = sandbox.record("egress.denied").await;
    assert_eq!((&data["method"], &data["path"]), (&json!("GET"), &json!("/secret")));
}

#[tokio::test]
async fn repeated_denial_is_counted() {
    let sandbox = Sandbox::limited(policy(""), long_window());
    for _ in 0..5 {
        assert_eq!(sandbox.send(CONNECT).await.status(), Some(403));
    }
    let records = sandbox.close().await;
    let counts: Vec<&Value> = records.iter().map(|(_, data)| &data["count"]).collect();
    assert_eq!(counts, [&Value::Null, &json!(4)]);
}

#[tokio::test]
async fn many_different_denials_share_one_record() {
    let sandbox = Sandbox::limited(policy(""), long_window());
    for number in 0..300 {
        let request = format!("CONNECT h{number}.example.com:443 HTTP/1.1\r\nHost: h{number}.example.com\r\n\r\n");
        assert_eq!(sandbox.send(request).await.status(), Some(403));
    }
    assert_eq!(sandbox.egress.totals().denied, 300);
    let records = sandbox.close().await;
    assert_eq!(records.len(), 258);
    let (_, last) = records.last().unwrap();
    assert_eq!((&last["host"], &last["count"]), (&json!("*"), &json!(300 - 256 - 1)));
}

#[tokio::test]
async fn long_texts_are_truncated_in_records() {
    let sandbox = Sandbox::new(policy(""));
    let (method, host, path) = ("M".repeat(9000), "h".repeat(9000), "p".repeat(9000));
    let response = sandbox.send(format!("{method} http://{host}/{path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    assert_eq!(response.status(), Some(431));
    let response = sandbox.send(format!("{method} http://{host}/{path} HTTP/1.0\r\n\r\n")).await;
    assert_eq!(response.status(), Some(403));
    let data = sandbox.record("egress.denied").await;
    assert!(data.to_string().len() < 2000, "{data}");
}

#[tokio::test]
async fn client_that_is_still_sending_gets_the_refusal() {
    let sandbox = Sandbox::new(policy(""));
    let mut stream = sandbox.connect().await;
    let head = "PUT http://evil.example.com/ HTTP/1.1\r\nHost: evil.example.com\r\nContent-Length: 524288\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    soon(stream.read_to_end(&mut response)).await.unwrap();
    assert!(response.starts_with(b"HTTP/1.1 403"));
    for _ in 0..8 {
        stream.write_all(&vec![7; 65536]).await.unwrap();
    }
}
