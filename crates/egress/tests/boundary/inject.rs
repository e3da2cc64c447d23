//! Headers with a credential: the host gets it, nobody inside sees it.

use policy::{NarrowingLayer, PolicySource};
use tokio::io::AsyncWriteExt as _;

use crate::{
    origin::{self, Seen, Trust, certified},
    support::{Answer, Sandbox, policy, read_head, soon},
};

const NAME: &str = "api.example.com";
const CANARY: &str = "canary-3f9a7c51e2";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A session whose requests to one host carry a credential, and that host.
async fn scene(answer: &str) -> (Sandbox, Seen) {
    let rules = policy(
        "net:\n  enabled: true\n  allowlist: [api.example.com, 'plain.example.com:80', 'other.example.com:80']\n  \
         intercept: [api.example.com]\n  inject:\n    - api.example.com Authorization=Bearer {token}\n    \
         - plain.example.com:80 X-Key={token}\n",
    );
    let (acceptor, root) = certified(NAME, rustls::crypto::ring::default_provider());
    let sandbox = Sandbox::given(rules, &root, &[("token", CANARY)]);
    sandbox.world.name(NAME, &["203.0.113.20"]);
    let seen = origin::https(&sandbox.world, "203.0.113.20:443", acceptor, answer).await;
    (sandbox, seen)
}

async fn say(sandbox: &Sandbox, request: &str) -> Answer {
    let mut stream = sandbox.connect().await;
    stream.write_all(b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n").await.unwrap();
    read_head(&mut stream).await;
    let trust = Trust::of(sandbox.authority.as_ref().unwrap().certificate());
    let mut stream = soon(trust.speak(stream, NAME)).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    Answer::read(stream).await
}

#[tokio::test]
async fn the_host_gets_the_credential_in_place_of_what_was_written() {
    let (sandbox, seen) = scene(OK).await;
    for written in ["", "Authorization: Bearer placeholder\r\n", "authorization: a\r\nAUTHORIZATION: b\r\n"] {
        let answer = say(&sandbox, &format!("GET /v1 HTTP/1.1\r\nHost: {NAME}\r\n{written}\r\n")).await;
        assert_eq!(answer.status(), Some(200));
    }
    for request in seen.now() {
        assert_eq!(
            request,
            format!(
                "GET /v1 HTTP/1.1\r\nhost: {NAME}\r\nauthorization: Bearer {CANARY}\r\naccept-encoding: identity\r\n\
                 connection: close\r\n\r\n"
            )
        );
    }
    let records = sandbox.close().await;
    assert!(records.len() == 3 && !format!("{records:?}").contains(CANARY));
}

#[tokio::test]
async fn nobody_asks_for_a_part_of_an_answer_that_could_hold_a_part_of_it() {
    let (sandbox, seen) = scene(OK).await;
    let answer =
        say(&sandbox, &format!("GET /v1 HTTP/1.1\r\nHost: {NAME}\r\nRange: bytes=0-7\r\nIf-Range: x\r\n\r\n")).await;
    assert_eq!(answer.status(), Some(200));
    let request = seen.now().remove(0);
    assert!(request.contains(CANARY) && !request.to_lowercase().contains("range"), "{request}");
}

#[tokio::test]
async fn over_plain_http_it_goes_to_the_host_and_port_that_are_named() {
    let (sandbox, _) = scene(OK).await;
    for name in ["plain.example.com", "other.example.com"] {
        sandbox.world.name(name, &["203.0.113.30"]);
    }
    let seen = origin::http(&sandbox.world, "203.0.113.30:80", OK).await;
    for name in ["plain.example.com", "other.example.com"] {
        let answer = sandbox.say(format!("GET http://{name}/ HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
        assert_eq!(answer.status(), Some(200));
    }
    let got: Vec<bool> = seen.now().iter().map(|request| request.contains(CANARY)).collect();
    assert_eq!(got, [true, false]);
}

#[tokio::test]
async fn a_host_that_repeats_it_is_not_heard_saying_it() {
    let body = format!("you said {CANARY}, {CANARY}{CANARY} and canary-3f9a");
    let whole = format!(
        "HTTP/1.1 200 OK\r\nX-Echo: Bearer {CANARY}\r\nSet-Cookie: a={CANARY}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let in_chunks =
        body.as_bytes().chunks(7).map(|piece| format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)));
    let in_chunks: String = in_chunks.collect();
    let chunked = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{in_chunks}0\r\n\r\n");
    for answer in [whole, chunked] {
        let (sandbox, seen) = scene(&answer).await;
        let heard = say(&sandbox, &format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await;
        assert!(seen.now()[0].contains(CANARY), "the host did not get it");
        assert_eq!(heard.status(), Some(200));
        let unframed: String = heard.text().split("\r\n").filter(|line| line.len() > 2).collect();
        assert!(!heard.text().contains(CANARY) && !unframed.contains(CANARY), "{}", heard.text());
        assert!(unframed.contains("canary-3f9a"), "what is not the credential is covered too: {}", heard.text());
    }
}

#[tokio::test]
async fn a_request_that_would_send_it_back_is_refused() {
    let (sandbox, seen) = scene(OK).await;
    let answer = say(&sandbox, &format!("TRACE / HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await;
    assert_eq!(answer.status(), Some(403));
    assert!(answer.body().contains("net.inject") && !answer.text().contains(CANARY), "{}", answer.body());
    assert!(seen.now().is_empty());
}

#[tokio::test]
async fn no_refusal_and_no_failure_tells_it() {
    let (sandbox, _) = scene("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx").await;
    let mut heard = Vec::new();
    for request in ["GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"] {
        heard.push(say(&sandbox, request).await.text());
    }
    assert!(heard[0].contains("502") && heard[1].contains("400"), "{heard:?}");
    let records = sandbox.close().await;
    assert!(!format!("{heard:?}{records:?}").contains(CANARY));
}

#[tokio::test]
async fn a_credential_that_a_session_was_not_given_stops_the_request() {
    let (sandbox, seen) = scene(OK).await;
    let more = NarrowingLayer::grant("net.inject=api.example.com X-More={other}").unwrap();
    sandbox.policy.replace(sandbox.policy.current().with_grant(&more).unwrap());
    let answer = say(&sandbox, &format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await;
    assert_eq!(answer.status(), Some(403));
    assert!(answer.body().contains("the credential `other`"), "{}", answer.body());
    assert!(seen.now().is_empty());
    let less = NarrowingLayer::read(&PolicySource::new("session", "net: {inject: []}\n")).unwrap();
    sandbox.policy.replace(sandbox.policy.current().restricted_by(&less));
    assert_eq!(say(&sandbox, &format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await.status(), Some(200));
    assert!(!seen.now()[0].contains(CANARY));
}
