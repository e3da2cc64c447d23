//! Stored tokens, the audit log and CORS.

use std::sync::Arc;

use axum::body::Body;
use http::Request;
use server::{AuthMode, ServeError, ServerConfig};
use sha2::{Digest, Sha256};
use store::{DataDir, NewToken, SystemClock, TokenStore};
use tokio_util::sync::CancellationToken;

use crate::client::ApiResponse;
use crate::stage::{Stage, config, open};

crate::trials!(
    stored_token_is_valid_until_revoked,
    changing_calls_are_in_the_audit_log_with_their_caller,
    calls_of_disconnected_clients_are_in_the_audit_log,
    server_without_audit_log_does_not_start,
    stream_ends_when_its_token_is_revoked,
    only_listed_origins_may_call,
);

fn keep(tokens: &TokenStore, id: &str, text: &str, scopes: &[&str]) {
    let digest = Sha256::digest(text).into();
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    tokens.create(&NewToken { id: id.to_owned(), digest, name: None, scopes, ttl_ms: None }).unwrap();
}

fn guarded() -> (Stage, Arc<TokenStore>) {
    let folder = tempfile::tempdir().unwrap();
    let directory = DataDir::open(folder.path().join("data")).unwrap();
    let tokens = Arc::new(TokenStore::open(&directory, Arc::new(SystemClock)).unwrap());
    keep(&tokens, "tok_reader", "reader", &["read"]);
    keep(&tokens, "tok_driver", "driver", &["read", "drive"]);
    let (auth, audit) = (AuthMode::Stored(Vec::new(), tokens.clone()), Some(directory.audit_log()));
    (Stage::on(folder, ServerConfig { auth, audit, ..config() }), tokens)
}

async fn call(stage: &Stage, token: &str, method: &str, path: &str, body: &str) -> ApiResponse {
    let builder = Request::builder().method(method).uri(path).header("host", "localhost");
    let builder = builder.header("authorization", format!("Bearer {token}")).header("content-type", "application/json");
    stage.client.call(builder.body(Body::from(body.to_owned())).unwrap()).await
}

async fn stored_token_is_valid_until_revoked() {
    let (stage, tokens) = guarded();
    assert_eq!(call(&stage, "reader", "GET", "/v1/sessions", "").await.status, 200);
    assert_eq!(call(&stage, "reader", "POST", "/v1/sessions/s1", r#"{"agent":"mock"}"#).await.status, 403);
    assert_eq!(call(&stage, "driver", "POST", "/v1/sessions/s1", r#"{"agent":"mock"}"#).await.status, 200);
    assert_eq!(call(&stage, "driver", "DELETE", "/v1/sessions/s1", "").await.status, 403);
    assert_eq!(call(&stage, "tok_reader", "GET", "/v1/sessions", "").await.status, 401);
    assert!(tokens.revoke("tok_reader").unwrap());
    assert_eq!(call(&stage, "reader", "GET", "/v1/sessions", "").await.status, 401);
}

async fn changing_calls_are_in_the_audit_log_with_their_caller() {
    let (stage, _tokens) = guarded();
    call(&stage, "driver", "POST", "/v1/sessions/s1", r#"{"agent":"mock"}"#).await;
    call(&stage, "driver", "POST", "/v1/sessions/s1", r#"{"agent":"mock"}"#).await;
    call(&stage, "reader", "GET", "/v1/sessions", "").await;
    let log = std::fs::read_to_string(stage.directory.path().join("data/audit.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> =
        lines.iter().map(|line| (line["who"].as_str().unwrap(), line["status"].as_u64().unwrap())).collect();
    assert_eq!(told, [("tok_driver", 200), ("tok_driver", 409)]);
    assert!(lines.iter().all(|line| line["path"] == "/v1/sessions/s1" && line["request_id"].is_string()));
    assert!(!log.contains("mock"), "the audit log contains a request body");
}

async fn calls_of_disconnected_clients_are_in_the_audit_log() {
    let (stage, _tokens) = guarded();
    // Each client disconnects a little later than the one before.
    for polls in 1..=8 {
        let path = format!("/v1/sessions/s{polls}");
        let mut calling = Box::pin(call(&stage, "driver", "POST", &path, r#"{"agent":"mock"}"#));
        for _ in 0..polls {
            let polled = |context: &mut std::task::Context<'_>| {
                std::task::Poll::Ready(calling.as_mut().poll(context).is_ready())
            };
            if std::future::poll_fn(polled).await {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let log = || std::fs::read_to_string(stage.directory.path().join("data/audit.jsonl")).unwrap();
    testkit::wait_until_async("eight lines in the audit log", async || log().lines().count() >= 8).await;
    let lines = log();
    let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut noted: Vec<_> =
        lines.map(|line| (line["path"].as_str().unwrap().to_owned(), line["status"].clone())).collect();
    noted.sort_by(|one, other| one.0.cmp(&other.0));
    let expected: Vec<_> = (1..=8).map(|number| (format!("/v1/sessions/s{number}"), 200.into())).collect();
    assert_eq!(noted, expected);
    assert_eq!(stage.sessions.list(None, 100).unwrap().sessions.len(), 8, "the audit log differs from the changes");
}

async fn server_without_audit_log_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Some(folder.path().to_owned());
    let served = server::app(open(folder.path()), ServerConfig { audit, ..config() }, CancellationToken::new());
    assert!(matches!(served, Err(ServeError::Audit { .. })));
}

async fn stream_ends_when_its_token_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let directory = DataDir::open(folder.path().join("data")).unwrap();
    let tokens = Arc::new(TokenStore::open(&directory, Arc::new(SystemClock)).unwrap());
    keep(&tokens, "tok_driver", "driver", &["read", "drive"]);
    let (auth, heartbeat) = (AuthMode::Stored(Vec::new(), tokens.clone()), std::time::Duration::from_millis(5));
    let stage = Stage::on(folder, ServerConfig { auth, heartbeat, ..config() });
    call(&stage, "driver", "POST", "/v1/sessions/s1", r#"{"agent":"mock"}"#).await;
    for (id, path) in [("tok_one", "/v1/sessions/s1/events/sse"), ("tok_two", "/v1/events/sse")] {
        keep(&tokens, id, path, &["read"]);
        let request = Request::get(path).header("host", "localhost").header("authorization", format!("Bearer {path}"));
        let request = request.body(Body::empty()).unwrap();
        let reading = stage.client.call(request);
        let revoke = async {
            // The stream is open before the token is revoked.
            tokio::task::yield_now().await;
            assert!(tokens.revoke(id).unwrap());
        };
        let (read, ()) = tokio::join!(reading, revoke);
        assert_eq!(read.status, 200, "{path}");
        assert_eq!(call(&stage, path, "GET", "/v1/sessions", "").await.status, 401);
    }
}

async fn only_listed_origins_may_call() {
    let origins = vec!["https://ui.example.com".to_owned()];
    let stage = Stage::with(ServerConfig { origins, ..config() });
    let ask = async |origin: &str, method: &str| {
        let builder = Request::builder().method(method).uri("/v1/sessions").header("host", "localhost");
        let builder = builder.header("origin", origin).header("access-control-request-method", "GET");
        stage.client.call(builder.body(Body::empty()).unwrap()).await
    };
    let asked = ask("https://ui.example.com", "OPTIONS").await;
    assert_eq!(
        (asked.status, asked.headers["access-control-allow-origin"].to_str().unwrap()),
        (204, "https://ui.example.com")
    );
    let called = ask("https://ui.example.com", "GET").await;
    assert_eq!((called.status, called.headers["vary"].to_str().unwrap()), (200, "origin"));
    // A page may also read the refusal.
    let missing = Request::get("/v1/sessions/nobody").header("host", "localhost");
    let missing = missing.header("origin", "https://ui.example.com").body(Body::empty()).unwrap();
    let missing = stage.client.call(missing).await;
    let told = missing.headers["access-control-allow-origin"].to_str().unwrap();
    assert_eq!((missing.status, told), (404, "https://ui.example.com"));
    assert!(missing.headers["access-control-expose-headers"].to_str().unwrap().contains("x-request-id"));
    for (origin, method) in [("https://evil.example.org", "OPTIONS"), ("https://evil.example.org", "GET")] {
        let refused = ask(origin, method).await;
        assert_eq!(refused.status, 403);
        assert!(!refused.headers.contains_key("access-control-allow-origin"));
    }
}
