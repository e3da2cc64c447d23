//! The API over real sockets: TCP with tokens, the Unix socket without, and a bounded shutdown.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use server::{AccessToken, AuthMode, ServeError, ServerConfig, ServerListeners, TokenScope, serve};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::stage::{config, open};

crate::trials!(
    tcp_needs_a_token_and_the_unix_socket_does_not,
    without_tokens_only_loopback_is_allowed,
    shutdown_is_bounded_in_time,
    stalled_client_delays_no_other,
    all_clients_get_the_same_events,
    idle_stream_sends_heartbeats,
    invalid_http_gets_an_empty_error_response,
);

struct Running {
    directory: tempfile::TempDir,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    async fn start(config: ServerConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sessions = open(directory.path());
        let (stop, stopped) = oneshot::channel::<()>();
        let (bound, address) = oneshot::channel();
        let listeners = ServerListeners {
            tcp: vec!["127.0.0.1:0".parse().unwrap()],
            unix: Some(directory.path().join("viv.sock")),
            tls: None,
        };
        let server = tokio::spawn(async move {
            let told = |addresses: &[SocketAddr]| bound.send(addresses[0]).unwrap();
            serve(listeners, config, sessions, told, async { stopped.await.unwrap_or(()) }).await
        });
        Self { directory, address: address.await.unwrap(), stop: Some(stop), server }
    }

    async fn unix(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join("viv.sock")).await.unwrap()
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn post(&self, path: &str, body: &str) -> String {
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json");
        exchange(self.unix().await, &format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await
    }

    async fn stop(mut self) -> Duration {
        let started = Instant::now();
        self.stop.take().unwrap().send(()).unwrap();
        self.server.await.unwrap().unwrap();
        started.elapsed()
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n")
}

/// Reads until `wanted` has arrived.
async fn read_until(stream: &mut (impl AsyncRead + Unpin), wanted: &str) -> String {
    let (mut text, mut piece, mut searched) = (String::new(), vec![0; 64 * 1024], 0);
    while !text[searched..].contains(wanted) {
        searched = text.len().saturating_sub(wanted.len());
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "the stream ended before `{wanted}`: {text}");
        text.push_str(std::str::from_utf8(&piece[..count]).unwrap());
    }
    text
}

async fn tcp_needs_a_token_and_the_unix_socket_does_not() {
    let auth = AuthMode::Tokens(vec![AccessToken::new("secret", [TokenScope::Admin])]);
    let running = Running::start(ServerConfig { auth, ..config() }).await;
    assert!(exchange(running.tcp().await, &get("/v1/sessions", "")).await.starts_with("HTTP/1.1 401"));
    let with = get("/v1/sessions", "authorization: Bearer secret\r\n");
    assert!(exchange(running.tcp().await, &with).await.starts_with("HTTP/1.1 200"));
    assert!(exchange(running.unix().await, &get("/v1/sessions", "")).await.starts_with("HTTP/1.1 200"));
    let socket = running.directory.path().join("viv.sock");
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    running.stop().await;
}

async fn without_tokens_only_loopback_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let listeners = ServerListeners { tcp: vec!["0.0.0.0:0".parse().unwrap()], unix: None, tls: None };
    let refused = serve(listeners, config(), open(directory.path()), |_| {}, std::future::pending()).await;
    assert!(matches!(refused, Err(ServeError::TokenRequired(_))));
}

async fn shutdown_is_bounded_in_time() {
    let running = Running::start(config()).await;
    assert!(running.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).await.starts_with("HTTP/1.1 200"));
    assert!(running.post("/v1/sessions/s1/messages", r#"{"message":"/slow 1000"}"#).await.starts_with("HTTP/1.1 204"));
    let mut stream = running.tcp().await;
    stream.write_all(get("/v1/sessions/s1/events/sse", "").as_bytes()).await.unwrap();
    read_until(&mut stream, "item.delta").await;
    let socket = running.directory.path().join("viv.sock");
    let took = running.stop().await;
    assert!(took < Duration::from_secs(3), "it took {took:?}");
    let rest = read_until(&mut stream, "host_shut_down").await;
    assert!(rest.contains("turn.ended"));
    assert!(!socket.exists());
}

async fn stalled_client_delays_no_other() {
    let running = Running::start(config()).await;
    running.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).await;
    let mut stuck = running.tcp().await;
    stuck.write_all(get("/v1/sessions/s1/events/sse", "").as_bytes()).await.unwrap();
    let mut steady = running.tcp().await;
    steady.write_all(get("/v1/sessions/s1/events/sse", "").as_bytes()).await.unwrap();
    running.post("/v1/sessions/s1/messages", r#"{"message":"/flood 20000"}"#).await;
    read_until(&mut steady, "event: turn.ended").await;
    // The stalled client missed nothing: it reads the events now.
    let late = read_until(&mut stuck, "event: turn.ended").await;
    assert_eq!(late.matches("event: item.delta").count(), 20_000);
    running.stop().await;
}

async fn all_clients_get_the_same_events() {
    let running = Running::start(config()).await;
    running.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).await;
    let mut readers = Vec::new();
    for _ in 0..50 {
        let mut stream = running.tcp().await;
        readers.push(tokio::spawn(async move {
            let answer = exchange(&mut stream, &get("/v1/sessions/s1/events/sse", "")).await;
            testkit::sse_frames(answer.split_once("\r\n\r\n").unwrap().1)
        }));
    }
    running.post("/v1/sessions/s1/messages", r#"{"message":"/flood 500"}"#).await;
    running.post("/v1/sessions/s1/messages", r#"{"message":"/end"}"#).await;
    let mut seen = Vec::new();
    for reader in readers {
        let ids: Vec<_> = reader.await.unwrap().into_iter().map(|frame| frame.sequence().unwrap()).collect();
        assert!(ids.len() > 500);
        seen.push(ids);
    }
    seen.dedup();
    assert_eq!(seen.len(), 1);
    running.stop().await;
}

async fn idle_stream_sends_heartbeats() {
    let running = Running::start(ServerConfig { heartbeat: Duration::from_millis(20), ..config() }).await;
    running.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).await;
    let mut stream = running.tcp().await;
    stream.write_all(get("/v1/sessions/s1/events/sse", "").as_bytes()).await.unwrap();
    read_until(&mut stream, ": heartbeat").await;
    running.stop().await;
}

async fn invalid_http_gets_an_empty_error_response() {
    let server = Running::start(config()).await;
    let wide = "x-a: 1\r\n".repeat(200);
    let twice = "content-length: 2\r\ncontent-length: 3\r\n";
    for (request, status) in [
        ("not a request\r\n\r\n".to_owned(), 400),
        (get("/v1/sessions", twice), 400),
        (get(&format!("/{}", "a".repeat(70_000)), ""), 414),
        (get("/v1/sessions", &wide), 431),
    ] {
        let answer = exchange(server.tcp().await, &request).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert_eq!(body, "", "{answer}");
    }
    server.stop().await;
}
