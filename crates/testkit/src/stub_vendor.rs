//! A stub vendor: a TCP server that sends exactly the bytes that a test specifies.

#![expect(clippy::unwrap_used, reason = "only tests call this")]

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// A request that the vendor received.
#[derive(Debug, Clone, Default)]
pub struct ReceivedRequest {
    /// Request line and headers.
    pub head: String,
    /// The whole body.
    pub body: Bytes,
    /// Number of its connection, from 0.
    pub connection: usize,
}

impl ReceivedRequest {
    /// Returns the request line.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    /// Returns the value of a header; `name` is lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A connection from the gateway, plain or with TLS.
pub trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

/// Handles a request by writing to the connection; returns the connection to keep it open.
pub type RequestHandler = Arc<
    dyn Fn(ReceivedRequest, Box<dyn Connection>) -> Pin<Box<dyn Future<Output = Option<Box<dyn Connection>>> + Send>>
        + Send
        + Sync,
>;
/// Wraps an accepted connection, for example in TLS.
pub type ConnectionWrapper =
    Arc<dyn Fn(TcpStream) -> Pin<Box<dyn Future<Output = Box<dyn Connection>> + Send>> + Send + Sync>;

/// A running stub vendor; it stops when dropped.
#[derive(Debug)]
pub struct StubVendor {
    /// The address on which it listens.
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    _tasks: JoinSet<()>,
}

impl StubVendor {
    /// Starts a vendor that answers every request with the same bytes and keeps the connection open.
    pub async fn answering(answer: impl Into<Bytes>) -> Self {
        let answer: Bytes = answer.into();
        Self::with_handler(move |_, mut connection| {
            let answer = answer.clone();
            async move {
                connection.write_all(&answer).await.ok()?;
                Some(connection)
            }
        })
        .await
    }

    /// Starts a vendor that calls `handler` for each request.
    pub async fn with_handler<F, R>(handler: F) -> Self
    where
        F: Fn(ReceivedRequest, Box<dyn Connection>) -> R + Send + Sync + 'static,
        R: Future<Output = Option<Box<dyn Connection>>> + Send + 'static,
    {
        let plain: ConnectionWrapper =
            Arc::new(|stream| Box::pin(async move { Box::new(stream) as Box<dyn Connection> }));
        Self::with_wrapper(plain, handler).await
    }

    /// Starts a vendor that wraps each connection and calls `handler` for each request.
    pub async fn with_wrapper<F, R>(wrapper: ConnectionWrapper, handler: F) -> Self
    where
        F: Fn(ReceivedRequest, Box<dyn Connection>) -> R + Send + Sync + 'static,
        R: Future<Output = Option<Box<dyn Connection>>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let handler: RequestHandler = Arc::new(move |request, connection| Box::pin(handler(request, connection)));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, wrapper, handler, received.clone()));
        Self { address, received, _tasks: tasks }
    }

    /// Returns the base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests received so far.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }
}

async fn accept(
    listener: TcpListener,
    wrapper: ConnectionWrapper,
    handler: RequestHandler,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (wrapper, handler, received) = (wrapper.clone(), handler.clone(), received.clone());
        connections.spawn(async move {
            let mut connection = wrapper(stream).await;
            while let Some(mut request) = read_request(&mut connection).await {
                request.connection = number;
                received.lock().unwrap().push(request.clone());
                match handler(request, connection).await {
                    Some(kept) => connection = kept,
                    None => return,
                }
            }
        });
    }
}

/// Reads one request; reads the head byte by byte so that no byte of the next request is consumed.
async fn read_request(connection: &mut Box<dyn Connection>) -> Option<ReceivedRequest> {
    let mut reader = BufReader::with_capacity(1, connection);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(reader.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let request = ReceivedRequest { head, ..ReceivedRequest::default() };
    let length: usize = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.ok()?;
    Some(ReceivedRequest { body: body.into(), ..request })
}

/// Returns a response with a `content-length`.
pub fn http_response(status: &str, kind: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Returns a chunked event stream with one chunk per event.
pub fn http_event_stream(events: &[&str]) -> String {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunks: Vec<String> = events.iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len())).collect();
    format!("{head}{}0\r\n\r\n", chunks.concat())
}
