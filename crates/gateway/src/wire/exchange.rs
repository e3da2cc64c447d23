//! One request and its answer, on a connection that may have served others.

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
    body::Decoder,
    connect::{Connector, Wire},
    head::{AnswerHead, RequestHead},
};
use crate::upstream::{ResponseStream, UpstreamFailure};

/// Room made for each read; what a busy server has sent meanwhile fits in one.
const READ_BYTES: usize = 32 << 10;
/// Connections kept for later.
const IDLE_CONNECTIONS: usize = 64;

/// How long each step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// Until the connection stands, TLS included.
    pub connect: Duration,
    /// From the request to the head of the answer.
    pub first_byte: Duration,
    /// Between two pieces of the answer.
    pub idle: Duration,
    /// How long an unused connection is kept.
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

/// A client of one server.
pub(crate) struct Client {
    name: String,
    connector: Connector,
    timeouts: UpstreamTimeouts,
    retries: u32,
    pool: Arc<Pool>,
}

/// The head of an answer, and its bytes to come.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) frames: ResponseStream,
}

struct Connection {
    wire: Box<dyn Wire>,
    buffer: BytesMut,
    reused: bool,
}

impl Client {
    /// A client called `name` in errors, which tries again at most `retries` times where no connection stands.
    pub(crate) fn new(name: String, connector: Connector, timeouts: UpstreamTimeouts, retries: u32) -> Self {
        Self { name, connector, timeouts, retries, pool: Arc::new(Pool::new(timeouts.pool_idle)) }
    }

    /// Sends a request and returns when the head of the answer has come.
    pub(crate) async fn send(&self, head: RequestHead<'_>, body: &[u8]) -> Result<Answer, UpstreamFailure> {
        let head = head.encode(body.len());
        loop {
            let mut connection = self.connection().await?;
            match self.exchange(&mut connection, &head, body).await {
                Ok(answer) => return Ok(self.answer(answer, connection)),
                // A server may close a kept connection in the moment it is used again: no answer, nothing done.
                Err(UpstreamFailure::Cut) if connection.reused && connection.buffer.is_empty() => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// A kept connection, or a new one.
    async fn connection(&self) -> Result<Connection, UpstreamFailure> {
        if let Some(connection) = self.pool.take() {
            return Ok(connection);
        }
        let mut attempts = 0;
        loop {
            let source = match timeout(self.timeouts.connect, self.connector.connect()).await {
                Ok(Ok(wire)) => return Ok(Connection { wire, buffer: BytesMut::new(), reused: false }),
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
        connection: &mut Connection,
        head: &[u8],
        body: &[u8],
    ) -> Result<AnswerHead, UpstreamFailure> {
        let allowed = self.timeouts.first_byte;
        let exchange = async {
            // A server may refuse a body before it has read all of it: its answer is what counts then.
            let written = connection.write(Buf::chain(head, body)).await;
            match connection.read_head().await {
                Err(UpstreamFailure::Cut) if written.is_err() => Err(UpstreamFailure::Cut),
                answer => answer,
            }
        };
        timeout(allowed, exchange).await.unwrap_or(Err(UpstreamFailure::Silent(allowed.as_secs())))
    }

    fn answer(&self, head: AnswerHead, connection: Connection) -> Answer {
        let body = Body {
            connection: Some(connection),
            decoder: head.decoder,
            idle: self.timeouts.idle,
            sleep: None,
            pool: head.keep_alive.then(|| self.pool.clone()),
        };
        Answer { status: head.status, headers: head.headers, frames: Box::pin(body) }
    }
}

impl Connection {
    async fn write(&mut self, mut bytes: impl Buf) -> std::io::Result<()> {
        self.wire.write_all_buf(&mut bytes).await?;
        self.wire.flush().await
    }

    async fn read_head(&mut self) -> Result<AnswerHead, UpstreamFailure> {
        loop {
            if let Some(head) = AnswerHead::take(&mut self.buffer)? {
                return Ok(head);
            }
            self.buffer.reserve(READ_BYTES);
            if !matches!(self.wire.read_buf(&mut self.buffer).await, Ok(1..)) {
                return Err(UpstreamFailure::Cut);
            }
        }
    }

    /// Whether nothing has come since the last answer: neither bytes nor the end.
    fn is_quiet(&mut self) -> bool {
        self.buffer.is_empty() && self.wire.read_buf(&mut self.buffer).now_or_never().is_none()
    }
}

/// The body of an answer, as it comes.
struct Body {
    connection: Option<Connection>,
    decoder: Decoder,
    idle: Duration,
    /// Set while nothing comes.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Where the connection goes afterwards, if it can be used again.
    pool: Option<Arc<Pool>>,
}

impl Stream for Body {
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
                Ok(None) if this.decoder == Decoder::Done => {
                    this.keep();
                    return Poll::Ready(None);
                }
                Ok(None) => {}
                Err(failure) => return Poll::Ready(Some(Err(this.give_up(failure)))),
            }
            match ready!(this.poll_more(context)) {
                Ok(true) => {}
                Ok(false) if this.decoder.ends_here() => this.connection = None,
                Ok(false) => return Poll::Ready(Some(Err(this.give_up(UpstreamFailure::Cut)))),
                Err(failure) => return Poll::Ready(Some(Err(this.give_up(failure)))),
            }
        }
    }
}

impl Body {
    /// Reads what has come; false: the connection has ended.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, UpstreamFailure>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(false)) };
        connection.buffer.reserve(READ_BYTES);
        match poll_read_buf(Pin::new(&mut connection.wire), context, &mut connection.buffer) {
            Poll::Ready(Ok(length)) => Poll::Ready(Ok(length > 0)),
            // A connection that breaks and one that ends early are the same to us.
            Poll::Ready(Err(_)) => Poll::Ready(Ok(false)),
            Poll::Pending => {
                let idle = self.idle;
                let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
                sleep.as_mut().poll(context).map(|()| Err(UpstreamFailure::Silent(idle.as_secs())))
            }
        }
    }

    fn give_up(&mut self, failure: UpstreamFailure) -> UpstreamFailure {
        self.connection = None;
        failure
    }

    fn keep(&mut self) {
        if let (Some(connection), Some(pool)) = (self.connection.take(), self.pool.take()) {
            pool.put(connection);
        }
    }
}

/// Connections that wait for their next exchange, each for callers of the runtime that made it: another one would have
/// to be woken by that one at every step.
struct Pool {
    keep: Duration,
    idle: Mutex<HashMap<runtime::Id, Vec<(Instant, Connection)>>>,
}

impl Pool {
    fn new(keep: Duration) -> Self {
        Self { keep, idle: Mutex::default() }
    }

    /// The connection used last that is still good.
    fn take(&self) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        let idle = idle.get_mut(&Handle::current().id())?;
        while let Some((since, mut connection)) = idle.pop() {
            if since.elapsed() < self.keep && connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    fn put(&self, mut connection: Connection) {
        // One whose runtime is gone is of no use to anybody.
        let Ok(runtime) = Handle::try_current() else { return };
        connection.reused = true;
        let mut idle = lock(&self.idle);
        // Those of all runtimes: one that nobody calls on any more would keep its own for good. The oldest come first.
        let now = Instant::now();
        idle.retain(|_, idle| {
            let stale = idle.iter().take_while(|(since, _)| now.duration_since(*since) >= self.keep).count();
            idle.drain(..stale);
            !idle.is_empty()
        });
        let idle = idle.entry(runtime.id()).or_default();
        if connection.buffer.is_empty() && idle.len() < IDLE_CONNECTIONS {
            idle.push((now, connection));
        }
    }
}
