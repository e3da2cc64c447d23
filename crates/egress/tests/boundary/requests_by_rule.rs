//! Rules with methods and paths, over plain HTTP.

use crate::{
    origin,
    support::{Sandbox, allowing},
};

const NAME: &str = "files.example.com";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn sandbox(list: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new(allowing(list));
    sandbox.network.name(NAME, &["203.0.113.10"]);
    origin::http(&sandbox.network, "203.0.113.10:80", OK).await;
    sandbox
}

async fn ask(sandbox: &Sandbox, method: &str, path: &str) -> Option<u16> {
    sandbox.send(format!("{method} http://{NAME}{path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await.status()
}

#[tokio::test]
async fn only_matching_methods_and_paths_are_forwarded() {
    let sandbox = sandbox(&["GET|HEAD files.example.com:80/public/**"]).await;
    assert_eq!(ask(&sandbox, "GET", "/public/a?b=c").await, Some(200));
    assert_eq!(ask(&sandbox, "GET", "/%70ublic/a").await, Some(200));
    let passed = sandbox.network.called().len();
    for (method, path) in
        [("POST", "/public/a"), ("GET", "/private"), ("GET", "/publicity"), ("GET", "/"), ("PUT", "/")]
    {
        assert_eq!(ask(&sandbox, method, path).await, Some(403), "{method} {path}");
    }
    assert_eq!(sandbox.network.called().len(), passed, "a refused request was sent");
}

#[tokio::test]
async fn override_headers_are_refused() {
    let listed = sandbox(&["GET files.example.com:80/public/**"]).await;
    // Control: without a rule about requests, all of them are sent.
    let unlisted = sandbox(&["files.example.com:80"]).await;
    for line in [
        "X-HTTP-Method-Override: DELETE",
        "x-http-method: DELETE",
        "X-Method-Override: DELETE",
        "X-Original-URL: /private",
        "X-ORIGINAL-URI: /private",
        "X-Rewrite-URL: /private",
        "X-Override-URL: /private",
        "X-Forwarded-Uri: /private",
    ] {
        let request = format!("GET http://{NAME}/public/a HTTP/1.1\r\nHost: {NAME}\r\n{line}\r\n\r\n");
        assert_eq!(listed.send(&request).await.status(), Some(403), "{line}");
        assert_eq!(unlisted.send(&request).await.status(), Some(200), "{line}");
    }
    assert!(listed.network.called().is_empty(), "a refused request was sent");
    for (host, status) in [(NAME, 200), ("files.example.com:80", 200), ("vault.example.com", 400), ("", 400)] {
        let line = format!("X-Forwarded-Host: {host}");
        let request = format!("GET http://{NAME}/public/a HTTP/1.1\r\nHost: {NAME}\r\n{line}\r\n\r\n");
        assert_eq!(unlisted.send(&request).await.status(), Some(status), "{line}");
    }
}

#[tokio::test]
async fn disguised_paths_do_not_match_a_rule() {
    let listed = sandbox(&["files.example.com:80/public/**"]).await;
    // Control: without a rule about paths, all of them are sent.
    let unlisted = sandbox(&["files.example.com:80"]).await;
    let attacks = [
        "/public/../private",
        "/public/%2e%2e/private",
        "/public/.%2e/private",
        "/public/%252e%252e/private",
        "/public/..%2fprivate",
        "/public/..%5cprivate",
        "/public/..\\private",
        "/public/..;/private",
        "/public/;/private",
        "/public//private",
        "//public/private",
        "/public/%00/private",
        "/public%2fprivate",
        "/public/%zz",
        "/private/%2e%2e/public",
        "/PUBLIC/a",
        "?/public/a",
    ];
    for path in attacks {
        assert_eq!(ask(&unlisted, "GET", path).await, Some(200), "{path}");
        assert_eq!(ask(&listed, "GET", path).await, Some(403), "{path}");
    }
    assert!(listed.network.called().is_empty() && listed.network.looked_up().is_empty());
}

#[tokio::test]
async fn rule_about_requests_allows_no_tunnel() {
    let sandbox = sandbox(&["GET files.example.com:443/public/**"]).await;
    let response = sandbox.send("CONNECT files.example.com:443 HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await;
    assert_eq!(response.status(), Some(403));
    assert!(response.body().contains("methods and paths are not visible in a tunnel"), "{}", response.body());
    let socks = sandbox.send(b"\x05\x01\x00\x05\x01\x00\x03\x11files.example.com\x01\xbb").await;
    assert_eq!(socks.bytes[..4], [5, 0, 5, 2]);
    assert!(sandbox.network.looked_up().is_empty());
}

#[tokio::test]
async fn records_contain_the_path_of_each_request() {
    let sandbox = sandbox(&["GET files.example.com:80/public/**"]).await;
    for path in ["/a", "/b", "/a"] {
        assert_eq!(ask(&sandbox, "GET", path).await, Some(403));
    }
    let records = sandbox.close().await;
    let told: Vec<_> =
        records.iter().map(|(_, data)| (data["path"].as_str().unwrap(), data["count"].as_u64())).collect();
    assert_eq!(told, [("/a", None), ("/b", None), ("/a", Some(1))]);
    assert!(records[0].1["rule"].as_str().unwrap().ends_with("(sandbox.policy.yaml:4)"), "{:?}", records[0]);
}
