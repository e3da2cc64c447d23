//! Rules that name methods and paths, for plain HTTP; the rule alone lets the rest of it through.

use crate::{
    origin,
    support::{Sandbox, allowing},
};

const NAME: &str = "files.example.com";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn sandbox(list: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new(allowing(list));
    sandbox.world.name(NAME, &["203.0.113.10"]);
    origin::http(&sandbox.world, "203.0.113.10:80", OK).await;
    sandbox
}

async fn ask(sandbox: &Sandbox, method: &str, path: &str) -> Option<u16> {
    sandbox.say(format!("{method} http://{NAME}{path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await.status()
}

#[tokio::test]
async fn only_the_methods_and_paths_of_a_rule_leave() {
    let sandbox = sandbox(&["GET|HEAD files.example.com:80/public/**"]).await;
    assert_eq!(ask(&sandbox, "GET", "/public/a?b=c").await, Some(200));
    assert_eq!(ask(&sandbox, "GET", "/%70ublic/a").await, Some(200));
    let passed = sandbox.world.called().len();
    for (method, path) in
        [("POST", "/public/a"), ("GET", "/private"), ("GET", "/publicity"), ("GET", "/"), ("PUT", "/")]
    {
        assert_eq!(ask(&sandbox, method, path).await, Some(403), "{method} {path}");
    }
    assert_eq!(sandbox.world.called().len(), passed, "a request that was refused was sent");
}

#[tokio::test]
async fn no_header_makes_another_request_of_the_one_that_is_allowed() {
    let listed = sandbox(&["GET files.example.com:80/public/**"]).await;
    // Without a rule about requests they are sent: what stops them is the rule.
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
        assert_eq!(listed.say(&request).await.status(), Some(403), "{line}");
        assert_eq!(unlisted.say(&request).await.status(), Some(200), "{line}");
    }
    assert!(listed.world.called().is_empty(), "a request that was refused was sent");
    for (host, status) in [(NAME, 200), ("files.example.com:80", 200), ("vault.example.com", 400), ("", 400)] {
        let line = format!("X-Forwarded-Host: {host}");
        let request = format!("GET http://{NAME}/public/a HTTP/1.1\r\nHost: {NAME}\r\n{line}\r\n\r\n");
        assert_eq!(unlisted.say(&request).await.status(), Some(status), "{line}");
    }
}

#[tokio::test]
async fn no_way_of_writing_a_path_leads_out_of_the_one_that_is_allowed() {
    let listed = sandbox(&["files.example.com:80/public/**"]).await;
    // Without a rule about paths each of them is sent: what stops them below is the rule.
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
    assert!(listed.world.called().is_empty() && listed.world.looked_up().is_empty());
}

#[tokio::test]
async fn a_tunnel_is_not_let_through_by_a_rule_about_requests() {
    let sandbox = sandbox(&["GET files.example.com:443/public/**"]).await;
    let answer = sandbox.say("CONNECT files.example.com:443 HTTP/1.1\r\nHost: files.example.com\r\n\r\n").await;
    assert_eq!(answer.status(), Some(403));
    assert!(answer.body().contains("methods and paths are not seen in a tunnel"), "{}", answer.body());
    let socks = sandbox.say(b"\x05\x01\x00\x05\x01\x00\x03\x11files.example.com\x01\xbb").await;
    assert_eq!(socks.bytes[..4], [5, 0, 5, 2]);
    assert!(sandbox.world.looked_up().is_empty());
}

#[tokio::test]
async fn what_was_asked_for_is_on_the_record_path_by_path() {
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
