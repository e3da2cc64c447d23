//! The HTTP client: sends requests and reads responses over pooled connections.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use base::lock;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{FutureExt, Stream};
use http::{HeaderMap, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::{self, Handle},
    time::{Sleep, timeout},
};
use tokio_util::io::poll_read_buf;

use super::{
    body_decoder::BodyDecoder,
    connector::{ByteStream, ServerConnector},
    head::{RequestHead, ResponseHead},
};
use crate::{
    call::SendProgress,
    upstream::{ResponseStream, UpstreamFailure},
};

/// Buffer space per read; large enough for everything that a busy server sent since the last read.
const READ_BYTES: usize = 32 << 10;
/// Maximum number of idle connections per runtime.
const MAX_IDLE_CONNECTIONS: usize = 64;

/// Timeouts for the steps of a call to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// To establish the connection, TLS included.
    pub connect: Duration,
    /// From sending the request to receiving the response head.
    pub first_byte: Duration,
    /// Between two reads of the response body.
    pub idle: Duration,
    /// To keep an unused connection in the pool.
    pub pool_idle: Duration,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(300),
            idle: Duration::from_secs(120),
            pool_idle: Duration::from_secs(30),
        }
    }
}

/// An HTTP client for one server.
pub(crate) struct HttpClient {
    name: String,
    connector: ServerConnector,
    timeouts: UpstreamTimeouts,
    retries: u32,
    pool: Arc<ConnectionPool>,
}

/// A response head and the stream of its body.
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) frames: ResponseStream,
}

struct PooledConnection {
    stream: Box<dyn ByteStream>,
    buffer: BytesMut,
    reused: bool,
}

impl HttpClient {
    /// Creates a client. Errors contain `name`; a failed connection attempt is repeated up to `retries` times.
    pub(crate) fn new(name: String, connector: ServerConnector, timeouts: UpstreamTimeouts, retries: u32) -> Self {
        Self { name, connector, timeouts, retries, pool: Arc::new(ConnectionPool::new(timeouts.pool_idle)) }
    }

    /// Sends a request and returns when the response head has arrived.
    pub(crate) async fn send(
        &self,
        head: RequestHead<'_>,
        body: &[u8],
        progress: &SendProgress,
    ) -> Result<HttpResponse, UpstreamFailure> {
        let head = head.encode(body.len());
        let mut unsent = true;
        loop {
            let mut connection = match self.pool.take() {
                Some(connection) => connection,
                // A request that was written once may have been read, so it counts as sent from then on.
                None if unsent => self.connect_noted(progress).await?,
                None => self.connect().await?,
            };
            unsent = false;
            match self.exchange(&mut connection, &head, body).await {
                Ok(head) => return Ok(self.build_response(head, connection)),
                // The server closed an idle connection just when it was reused. It did not process the request, so
                // sending again is safe.
                Err(UpstreamFailure::Cut) if connection.reused && connection.buffer.is_empty() => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Opens a connection. The notes of the call say meanwhile that nothing was sent.
    async fn connect_noted(&self, progress: &SendProgress) -> Result<PooledConnection, UpstreamFailure> {
        let call = progress.connect();
        let connection = self.connect().await?;
        call.mark_sent().await.map_err(UpstreamFailure::NotMarkedSent)?;
        Ok(connection)
    }

    /// Opens a connection.
    async fn connect(&self) -> Result<PooledConnection, UpstreamFailure> {
        let mut attempts = 0;
        loop {
            let source = match timeout(self.timeouts.connect, self.connector.connect()).await {
                Ok(Ok(stream)) => return Ok(PooledConnection { stream, buffer: BytesMut::new(), reused: false }),
                Ok(Err(error)) => error,
                Err(_) => std::io::ErrorKind::TimedOut.into(),
            };
            if attempts >= self.retries {
                return Err(UpstreamFailure::Unreachable { upstream: self.name.clone(), source });
            }
            attempts += 1;
            tokio::time::sleep(Duration::from_millis(50 << attempts.min(6))).await;
        }
    }

    async fn exchange(
        &self,
        connection: &mut PooledConnection,
        head: &[u8],
        body: &[u8],
    ) -> Result<ResponseHead, UpstreamFailure> {
        let allowed = self.timeouts.first_byte;
        let exchange = async {
            // A server may answer before it has read the whole body, so a failed write is ignored if a response follows.
            let written = connection.write(Buf::chain(head, body)).await;
            match connection.read_head().await {
                Err(UpstreamFailure::Cut) if written.is_err() => Err(UpstreamFailure::Cut),
                head => head,
            }
        };
        timeout(allowed, exchange).await.unwrap_or(Err(UpstreamFailure::Silent(allowed.as_secs())))
    }

    fn build_response(&self, head: ResponseHead, connection: PooledConnection) -> HttpResponse {
        let body = HttpResponseBody {
            connection: Some(connection),
            decoder: head.decoder,
            idle: self.timeouts.idle,
            sleep: None,
            pool: head.keep_alive.then(|| self.pool.clone()),
        };
        HttpResponse { status: head.status, headers: head.headers, frames: Box::pin(body) }
    }
}

impl PooledConnection {
    async fn write(&mut self, mut bytes: impl Buf) -> std::io::Result<()> {
        self.stream.write_all_buf(&mut bytes).await?;
        self.stream.flush().await
    }

    async fn read_head(&mut self) -> Result<ResponseHead, UpstreamFailure> {
        loop {
            if let Some(head) = ResponseHead::parse(&mut self.buffer)? {
                return Ok(head);
            }
            self.buffer.reserve(READ_BYTES);
            if !matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..)) {
                return Err(UpstreamFailure::Cut);
            }
        }
    }

    /// Returns whether the server has neither sent bytes nor closed the connection since the last response.
    fn is_idle(&mut self) -> bool {
        self.buffer.is_empty() && self.stream.read_buf(&mut self.buffer).now_or_never().is_none()
    }
}

/// The body of a response, read from its connection.
struct HttpResponseBody {
    connection: Option<PooledConnection>,
    decoder: BodyDecoder,
    idle: Duration,
    /// The idle timeout; set while waiting for data.
    sleep: Option<Pin<Box<Sleep>>>,
    /// The pool to return the connection to, if it can be reused.
    pool: Option<Arc<ConnectionPool>>,
}

impl Stream for HttpResponseBody {
    type Item = Result<Bytes, UpstreamFailure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let Some(connection) = &mut this.connection else { return Poll::Ready(None) };
            match this.decoder.decode(&mut connection.buffer) {
                Ok(Some(bytes)) => {
                    this.sleep = None;
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Ok(None) if this.decoder == BodyDecoder::Done => {
                    this.return_connection();
                    return Poll::Ready(None);
                }
                Ok(None) => {}
                Err(failure) => return Poll::Ready(Some(Err(this.drop_connection(failure)))),
            }
            match ready!(this.poll_more(context)) {
                Ok(true) => {}
                Ok(false) if this.decoder.finish() => this.connection = None,
                Ok(false) => return Poll::Ready(Some(Err(this.drop_connection(UpstreamFailure::Cut)))),
                Err(failure) => return Poll::Ready(Some(Err(this.drop_connection(failure)))),
            }
        }
    }
}

impl HttpResponseBody {
    /// Reads available bytes into the buffer; returns false at the end of the connection.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, UpstreamFailure>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(false)) };
        connection.buffer.reserve(READ_BYTES);
        match poll_read_buf(Pin::new(&mut connection.stream), context, &mut connection.buffer) {
            Poll::Ready(Ok(length)) => Poll::Ready(Ok(length > 0)),
            // A connection error is treated like an early end.
            Poll::Ready(Err(_)) => Poll::Ready(Ok(false)),
            Poll::Pending => {
                let idle = self.idle;
                let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
                sleep.as_mut().poll(context).map(|()| Err(UpstreamFailure::Silent(idle.as_secs())))
            }
        }
    }

    fn drop_connection(&mut self, failure: UpstreamFailure) -> UpstreamFailure {
        self.connection = None;
        failure
    }

    fn return_connection(&mut self) {
        if let (Some(connection), Some(pool)) = (self.connection.take(), self.pool.take()) {
            pool.put(connection);
        }
    }
}

/// Idle connections by runtime.
///
/// A connection is reused only on the runtime that opened it; otherwise that runtime would have to wake the other one at
/// every step.
struct ConnectionPool {
    max_idle: Duration,
    idle: Mutex<HashMap<runtime::Id, Vec<(Instant, PooledConnection)>>>,
}

impl ConnectionPool {
    fn new(max_idle: Duration) -> Self {
        Self { max_idle, idle: Mutex::default() }
    }

    /// Takes the most recently used connection that is still usable.
    fn take(&self) -> Option<PooledConnection> {
        let mut idle = lock(&self.idle);
        let idle = idle.get_mut(&Handle::current().id())?;
        while let Some((since, mut connection)) = idle.pop() {
            if since.elapsed() < self.max_idle && connection.is_idle() {
                return Some(connection);
            }
        }
        None
    }

    fn put(&self, mut connection: PooledConnection) {
        // Without a runtime the connection cannot be reused.
        let Ok(runtime) = Handle::try_current() else { return };
        connection.reused = true;
        let mut idle = lock(&self.idle);
        // Removes expired connections of all runtimes: an unused runtime would otherwise keep its connections forever.
        // Each list has the oldest connection first.
        let now = Instant::now();
        idle.retain(|_, idle| {
            let stale = idle.iter().take_while(|(since, _)| now.duration_since(*since) >= self.max_idle).count();
            idle.drain(..stale);
            !idle.is_empty()
        });
        let idle = idle.entry(runtime.id()).or_default();
        if connection.buffer.is_empty() && idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push((now, connection));
        }
    }
}
