//! A listener with its connections, served until it is closed.

mod tasks;

use std::{fmt, io, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    call::Billing,
    identity::{AuthenticationError, GatewayIdentity, GatewayLimits},
    service::{self, ConnectionContext},
    workers::WorkerPool,
};

pub(crate) use tasks::AttachmentTasks;

/// Returns the identity that a token belongs to. The time it takes must not depend on the bytes of the token.
pub type TokenLookup = Arc<dyn Fn(&str) -> Result<Arc<GatewayIdentity>, AuthenticationError> + Send + Sync>;

/// The time a connection may idle, or take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(300);
/// The most bytes of one connection that are buffered before they are parsed or sent. Also the longest head.
const CONNECTION_BUFFER: usize = 64 << 10;
/// The pause before the next accept when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves one listener.
///
/// Dropping it stops it at once: running calls are cut off and recorded as far as they came.
#[must_use = "dropping it closes the session's listener for model calls"]
pub struct GatewayAttachment {
    tasks: AttachmentTasks,
    close_grace: Duration,
    /// Keeps the worker threads running.
    _workers: Arc<WorkerPool>,
}

impl fmt::Debug for GatewayAttachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayAttachment").field("close_grace", &self.close_grace).finish_non_exhaustive()
    }
}

impl GatewayAttachment {
    pub(crate) fn serve(
        listener: std::net::TcpListener,
        limits: GatewayLimits,
        lookup: TokenLookup,
        billing: Billing,
        workers: Arc<WorkerPool>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let worker = workers.next()?;
        let listener = {
            let _entered = worker.runtime.enter();
            TcpListener::from_std(listener)?
        };
        let tasks = AttachmentTasks::new(worker);
        let close_grace = limits.close_grace;
        let context = ConnectionContext { lookup, billing, limits, tasks: tasks.clone() };
        drop(tasks.spawn(accept(listener, context, workers.clone())));
        Ok(Self { tasks, close_grace, _workers: workers })
    }

    /// Closes the listener, waits [`GatewayLimits::close_grace`] for running calls and cuts off the others.
    ///
    /// Returns when every call is recorded. After that the gateway writes nothing to the journal.
    pub async fn close(self) {
        self.tasks.closing().cancel();
        if tokio::time::timeout(self.close_grace, self.tasks.finished()).await.is_err() {
            self.tasks.abort().cancel();
            self.tasks.finished().await;
        }
    }
}

impl Drop for GatewayAttachment {
    fn drop(&mut self) {
        self.tasks.closing().cancel();
        self.tasks.abort().cancel();
    }
}

async fn accept(listener: TcpListener, context: ConnectionContext, workers: Arc<WorkerPool>) {
    let permits = Arc::new(Semaphore::new(context.limits.connections));
    loop {
        let next = async {
            let permit = permits.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let Some((permit, accepted)) = context.tasks.closing().run_until_cancelled(next).await else { return };
        match (permit, accepted) {
            (Ok(permit), Ok((stream, _))) => {
                if let Err(error) = hand_over(stream, &context, &workers, permit) {
                    tracing::warn!(%error, "cannot serve a connection");
                }
            }
            (Err(_), _) => return,
            (_, Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Hands a connection to the next worker, so that the clients of one listener share all workers.
fn hand_over(
    stream: TcpStream,
    context: &ConnectionContext,
    workers: &WorkerPool,
    permit: OwnedSemaphorePermit,
) -> io::Result<()> {
    let (stream, worker) = (stream.into_std()?, workers.next()?);
    let stream = {
        let _entered = worker.runtime.enter();
        TcpStream::from_std(stream)?
    };
    let tasks = context.tasks.on(worker);
    let context = Arc::new(ConnectionContext { tasks: tasks.clone(), ..context.clone() });
    drop(tasks.spawn(serve_connection(stream, context, permit)));
    Ok(())
}

async fn serve_connection(stream: TcpStream, context: Arc<ConnectionContext>, permit: OwnedSemaphorePermit) {
    // Without it the small frames of a stream wait for acknowledgements, 40 ms each.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let tasks = context.tasks.clone();
    let service = service_fn(move |request| service::serve(context.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(CONNECTION_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = tasks.closing().cancelled() => None,
    };
    let ended = if ended.is_some() {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        tasks.abort().run_until_cancelled(connection).await
    };
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
    drop(permit);
}
