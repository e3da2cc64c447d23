//! Idempotency keys: a request runs once, also if its response is lost or the server is killed.

use std::path::{Path, PathBuf};

use http::{Method, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::child::{socket, start};
use crate::client::{ApiResponse, request};
use crate::stage::{Stage, config};

crate::trials!(
    repeated_request_gets_the_same_response_and_runs_once,
    different_request_with_the_same_key_is_refused,
    every_post_accepts_a_key,
    failed_request_can_be_repeated_with_its_key,
    key_belongs_to_its_caller,
    oversized_body_is_not_buffered_for_its_key,
    one_of_many_concurrent_requests_runs,
    invalid_key_is_refused,
    stored_response_survives_a_restart,
    request_interrupted_by_a_kill_runs_once,
);

fn keyed(path: &str, key: &str, body: &str) -> Request<axum::body::Body> {
    let mut request = request(Method::POST, path, body);
    request.headers_mut().insert("idempotency-key", key.parse().unwrap());
    request
}

async fn send(stage: &Stage, path: &str, key: &str, body: &str) -> ApiResponse {
    stage.client.call(keyed(path, key, body)).await
}

fn replayed(answer: &ApiResponse) -> bool {
    answer.headers.get("idempotency-replayed").is_some_and(|value| value == "true")
}

async fn kinds(stage: &Stage, session: &str) -> Vec<String> {
    let page = stage.client.get(&format!("/v1/sessions/{session}/events")).await.json();
    let events = page["events"].as_array().unwrap();
    events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

async fn oversized_body_is_not_buffered_for_its_key() {
    use axum::body::{Body, Bytes};
    use futures_util::stream;

    let stage = Stage::with(server::ServerConfig { message_bytes: 2 << 20, ..config() });
    stage.session("s1").await;
    for (path, most) in [("/v1/sessions/s1/fork", 1_usize << 20), ("/v1/sessions/s1/messages", 2 << 20)] {
        // An endless body: buffering it without a limit would never end.
        let piece = Bytes::from(vec![b' '; 64 << 10]);
        let endless = stream::repeat_with(move || Ok::<_, std::io::Error>(piece.clone()));
        let mut request = keyed(path, "large", "{}");
        *request.body_mut() = Body::from_stream(endless);
        let refused = stage.client.call(request).await;
        assert_eq!((refused.status, &refused.json()["code"]), (413, &"body_too_large".into()), "{path}");
        assert!(refused.json()["detail"].to_string().contains(&most.to_string()), "{path}: {}", refused.text());
    }
}

async fn repeated_request_gets_the_same_response_and_runs_once() {
    let stage = Stage::new();
    let (path, body) = ("/v1/sessions/s1", r#"{"agent":"mock"}"#);
    let (first, second) = (send(&stage, path, "k1", body).await, send(&stage, path, "k1", body).await);
    assert_eq!((first.status, replayed(&first)), (200, false), "{}", first.text());
    assert_eq!((second.status, second.text(), replayed(&second)), (200, first.text(), true));
    assert_eq!(second.headers["content-type"], first.headers["content-type"]);
    assert_ne!(second.headers["x-request-id"], first.headers["x-request-id"]);
    assert_eq!(stage.client.post(path, body).await.status, 409, "without the key it is another request");

    let forked = send(&stage, "/v1/sessions/s1/fork", "k2", "").await.json();
    assert_eq!(send(&stage, "/v1/sessions/s1/fork", "k2", "").await.json(), forked);
    let sessions = stage.client.get("/v1/sessions").await.json();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 2, "the second made another one");

    let message = r#"{"message":"/echo once"}"#;
    let streamed = send(&stage, "/v1/sessions/s1/messages/stream", "k3", message).await;
    let again = send(&stage, "/v1/sessions/s1/messages/stream", "k3", message).await;
    assert_eq!(again.frames(), streamed.frames());
    assert_eq!(kinds(&stage, "s1").await.iter().filter(|kind| *kind == "turn.started").count(), 1);
}

async fn different_request_with_the_same_key_is_refused() {
    let stage = Stage::new();
    assert_eq!(send(&stage, "/v1/sessions/s1", "k", r#"{"agent":"mock"}"#).await.status, 200);
    for (path, body) in [
        ("/v1/sessions/s1", r#"{"agent":"mock","title":"other"}"#),
        ("/v1/sessions/s2", r#"{"agent":"mock"}"#),
        ("/v1/sessions/s1/messages", r#"{"message":"hello"}"#),
        ("/v1/sessions/s1/messages/stream?include_raw=true", r#"{"message":"hello"}"#),
    ] {
        let refused = send(&stage, path, "k", body).await;
        assert_eq!((refused.status, &refused.json()["code"]), (422, &"idempotency_key_reused".into()), "{path}");
    }
    assert_eq!(stage.client.get("/v1/sessions").await.json()["sessions"].as_array().unwrap().len(), 1);
    assert!(!kinds(&stage, "s1").await.contains(&"turn.started".to_owned()));
}

async fn every_post_accepts_a_key() {
    let stage = Stage::new();
    let document = stage.client.get("/openapi.json").await.json();
    let mut count = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let Some(operation) = item.get("post") else { continue };
        let parameters: Vec<&Value> = operation["parameters"].as_array().into_iter().flatten().collect();
        let named = parameters.iter().filter(|parameter| parameter["name"] == "Idempotency-Key").count();
        assert_eq!(named, 1, "{path}");
        // The key is checked first, so the session does not have to exist.
        let path = path.replace("{session_id}", "s1").replace("{permission_id}", "p").replace("{question_id}", "q");
        let path = path.replace("{agent}", "mock");
        let key = format!("key{count}");
        send(&stage, &path, &key, r#"{"first":1}"#).await;
        let refused = send(&stage, &path, &key, r#"{"second":2}"#).await;
        assert_eq!((refused.status, &refused.json()["code"]), (422, &"idempotency_key_reused".into()), "{path}");
        count += 1;
    }
    assert!(count > 15, "there are only {count}");
}

async fn failed_request_can_be_repeated_with_its_key() {
    let stage = Stage::new();
    let message = r#"{"message":"hello"}"#;
    assert_eq!(send(&stage, "/v1/sessions/s1/messages", "k", message).await.status, 404);
    stage.session("s1").await;
    assert_eq!(send(&stage, "/v1/sessions/s1/messages", "k", message).await.status, 204);
    assert!(replayed(&send(&stage, "/v1/sessions/s1/messages", "k", message).await));
}

async fn key_belongs_to_its_caller() {
    use server::{AccessToken, AuthMode, ServerConfig, TokenScope};
    let stage = Stage::with(ServerConfig {
        auth: AuthMode::Tokens(vec![AccessToken::new("a", [TokenScope::Admin])]),
        ..config()
    });
    let refused = send(&stage, "/v1/sessions/s1", "k", r#"{"agent":"mock"}"#).await;
    assert_eq!(refused.status, 401);
    let mut allowed = keyed("/v1/sessions/s1", "k", r#"{"agent":"mock","title":"mine"}"#);
    allowed.headers_mut().insert("authorization", "Bearer a".parse().unwrap());
    assert_eq!(stage.client.call(allowed).await.status, 200, "an unauthorized caller used up the key");
}

async fn one_of_many_concurrent_requests_runs() {
    let stage = Stage::new();
    stage.session("s1").await;
    let sends = (0..16).map(|_| {
        let client = stage.client.clone();
        tokio::spawn(async move { client.call(keyed("/v1/sessions/s1/fork", "k", "")).await })
    });
    for sent in sends.collect::<Vec<_>>() {
        let answer = sent.await.unwrap();
        let code = answer.json()["code"].clone();
        assert!(answer.status == 200 || code == "idempotency_key_in_flight", "{}", answer.text());
    }
    assert_eq!(stage.client.get("/v1/sessions").await.json()["sessions"].as_array().unwrap().len(), 2);
}

async fn invalid_key_is_refused() {
    let stage = Stage::new();
    for key in ["", " ", &"x".repeat(256)] {
        let refused = send(&stage, "/v1/sessions/s1", key, r#"{"agent":"mock"}"#).await;
        assert_eq!((refused.status, &refused.json()["code"]), (400, &"invalid_request".into()), "{key:?}");
    }
}

async fn stored_response_survives_a_restart() {
    let stage = Stage::new();
    let body = r#"{"agent":"mock"}"#;
    let first = send(&stage, "/v1/sessions/s1", "k", body).await;
    stage.sessions.close_all().await;
    let stage = stage.restarted();
    let again = send(&stage, "/v1/sessions/s1", "k", body).await;
    assert_eq!((again.status, again.text(), replayed(&again)), (200, first.text(), true));
    assert_eq!(send(&stage, "/v1/sessions/s1", "k", r#"{"agent":"claude"}"#).await.status, 422);
}

/// A request with an idempotency key.
#[derive(Clone)]
struct Keyed {
    path: &'static str,
    key: String,
    body: String,
}

impl Keyed {
    /// Sends it to the server of `directory` and returns the complete response.
    async fn send(self, directory: PathBuf) -> std::io::Result<String> {
        let Self { path, key, body } = self;
        let mut stream = UnixStream::connect(socket(&directory)).await?;
        let head = format!("POST {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json");
        let head = format!("{head}\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// Sends it twice: the first makes sure that it ran, the second must get the stored response.
    async fn settle(self, directory: &Path) -> Value {
        let first = self.clone().send(directory.to_owned()).await.unwrap();
        let second = self.clone().send(directory.to_owned()).await.unwrap();
        assert!(first.starts_with("HTTP/1.0 20"), "{}: {first}", self.key);
        assert!(second.contains("idempotency-replayed: true"), "{}: {second}", self.key);
        serde_json::from_str(first.split_once("\r\n\r\n").unwrap().1).unwrap_or_default()
    }
}

/// The server is killed at many points of a request. Sent again to the next server, the request succeeds and has run once.
async fn request_interrupted_by_a_kill_runs_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(directory.path()).await;
    let parent =
        Keyed { path: "/v1/sessions/parent", key: "parent".to_owned(), body: r#"{"agent":"mock"}"#.to_owned() };
    parent.send(directory.path().to_owned()).await.unwrap();
    let mut forks = Vec::new();
    for round in 0..12_u64 {
        let fork = Keyed { path: "/v1/sessions/parent/fork", key: format!("fork{round}"), body: String::new() };
        let body = json!({"message": format!("/echo {round}")}).to_string();
        let message = Keyed { path: "/v1/sessions/parent/messages", key: format!("message{round}"), body };
        let calls = [&fork, &message].map(|call| tokio::spawn(call.clone().send(directory.path().to_owned())));
        // At any point of the requests, also before and after them.
        testkit::pause_async(std::time::Duration::from_micros(round * 1700)).await;
        server.kill();
        for call in calls {
            let _ = call.await.unwrap();
        }
        server = start(directory.path()).await;
        forks.push(fork.settle(directory.path()).await["sessionId"].as_str().unwrap().to_owned());
        message.settle(directory.path()).await;
    }
    server.kill();
    let stage = Stage::on(directory, config());
    stage.sessions.recover().await.unwrap();
    forks.push("parent".to_owned());
    check_each_once(&stage, forks).await;
}

/// Checks that the sessions are `expected` and no message was accepted twice.
async fn check_each_once(stage: &Stage, mut expected: Vec<String>) {
    let list = stage.client.get("/v1/sessions").await.json();
    let listed = list["sessions"].as_array().unwrap().iter();
    let mut sessions: Vec<&str> = listed.map(|session| session["sessionId"].as_str().unwrap()).collect();
    sessions.sort_unstable();
    expected.sort();
    assert_eq!(sessions, expected, "a fork was made twice, or is gone");
    let page = stage.client.get("/v1/sessions/parent/events?limit=10000").await.json();
    let turns = page["events"].as_array().unwrap().iter().filter(|event| event["type"] == "turn.started");
    let mut names: Vec<&str> =
        turns.map(|event| event["data"]["metadata"]["client_message_id"].as_str().unwrap()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a message was taken twice");
}
