//! A stand-in for a vendor: a real TCP server that says exactly what a test tells it to.

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

/// A request as it came over the wire.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received {
    /// Request line and headers.
    pub(crate) head: String,
    pub(crate) body: Bytes,
    /// Which connection it came on, from 0.
    pub(crate) connection: usize,
}

impl Received {
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    /// The value of a header; the name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

pub(crate) trait Pipe: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Pipe for T {}

/// What is done with a request: bytes are written, and the connection ends where it is dropped.
pub(crate) type Play =
    Arc<dyn Fn(Received, Box<dyn Pipe>) -> Pin<Box<dyn Future<Output = Option<Box<dyn Pipe>>> + Send>> + Send + Sync>;
/// Wraps an accepted connection, in TLS for instance.
pub(crate) type Wrap = Arc<dyn Fn(TcpStream) -> Pin<Box<dyn Future<Output = Box<dyn Pipe>> + Send>> + Send + Sync>;

pub(crate) struct StubVendor {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    _tasks: JoinSet<()>,
}

impl StubVendor {
    /// A vendor that answers every request with the same bytes and keeps the connection.
    pub(crate) async fn saying(answer: impl Into<Bytes>) -> Self {
        let answer: Bytes = answer.into();
        Self::playing(move |_, mut pipe| {
            let answer = answer.clone();
            async move {
                pipe.write_all(&answer).await.ok()?;
                Some(pipe)
            }
        })
        .await
    }

    /// A vendor that does what `play` does, one request after the other.
    pub(crate) async fn playing<F, R>(play: F) -> Self
    where
        F: Fn(Received, Box<dyn Pipe>) -> R + Send + Sync + 'static,
        R: Future<Output = Option<Box<dyn Pipe>>> + Send + 'static,
    {
        let plain: Wrap = Arc::new(|stream| Box::pin(async move { Box::new(stream) as Box<dyn Pipe> }));
        Self::wrapped(plain, play).await
    }

    pub(crate) async fn wrapped<F, R>(wrap: Wrap, play: F) -> Self
    where
        F: Fn(Received, Box<dyn Pipe>) -> R + Send + Sync + 'static,
        R: Future<Output = Option<Box<dyn Pipe>>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let play: Play = Arc::new(move |request, pipe| Box::pin(play(request, pipe)));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, wrap, play, received.clone()));
        Self { address, received, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn accept(listener: TcpListener, wrap: Wrap, play: Play, received: Arc<Mutex<Vec<Received>>>) {
    let mut connections = JoinSet::new();
    for connection in 0.. {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (wrap, play, received) = (wrap.clone(), play.clone(), received.clone());
        connections.spawn(async move {
            let mut pipe = wrap(stream).await;
            while let Some(mut request) = read_request(&mut pipe).await {
                request.connection = connection;
                received.lock().unwrap().push(request.clone());
                match play(request, pipe).await {
                    Some(kept) => pipe = kept,
                    None => return,
                }
            }
        });
    }
}

/// Reads byte by byte up to the blank line, then the body: slow, and never a byte too far.
async fn read_request(pipe: &mut Box<dyn Pipe>) -> Option<Received> {
    let mut reader = BufReader::with_capacity(1, pipe);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(reader.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let request = Received { head, ..Received::default() };
    let length: usize = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.ok()?;
    Some(Received { body: body.into(), ..request })
}

/// An answer with a length.
pub(crate) fn whole(status: &str, kind: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// An event stream, each event a chunk of its own.
pub(crate) fn chunked(events: &[&str]) -> String {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunks: Vec<String> = events.iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len())).collect();
    format!("{head}{}0\r\n\r\n", chunks.concat())
}
