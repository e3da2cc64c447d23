//! A listener, served until it is closed.

use std::{fmt, io, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    identity::{AuthenticationError, GatewayIdentity, GatewayLimits},
    lanes::Lanes,
    service::{self, Desk},
    tasks::Tasks,
    till::Till,
};

/// Knows whom a token belongs to. Must compare in a time that tells nothing about the token.
pub type TokenLookup = Arc<dyn Fn(&str) -> Result<Arc<GatewayIdentity>, AuthenticationError> + Send + Sync>;

/// How long a connection may idle, or take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(300);
/// How long to wait when the system has no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves one listener.
///
/// Dropped, it stops at once: running calls are cut, and recorded as far as they came.
#[must_use = "dropping it closes the session's way to its model"]
pub struct GatewayAttachment {
    tasks: Tasks,
    close_grace: Duration,
    /// They serve as long as there is something to serve.
    _lanes: Arc<Lanes>,
}

impl fmt::Debug for GatewayAttachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("close_grace", &self.close_grace).finish_non_exhaustive()
    }
}

impl GatewayAttachment {
    pub(crate) fn serve(
        listener: std::net::TcpListener,
        limits: GatewayLimits,
        admit: TokenLookup,
        till: Till,
        lanes: Arc<Lanes>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let lane = lanes.next()?;
        let listener = {
            let _inside = lane.handle.enter();
            TcpListener::from_std(listener)?
        };
        let tasks = Tasks::new(lane);
        let close_grace = limits.close_grace;
        let desk = Desk { admit, till, limits, tasks: tasks.clone() };
        tasks.spawn(accept(listener, desk, lanes.clone()));
        Ok(Self { tasks, close_grace, _lanes: lanes })
    }

    /// Takes no more connections, lets running calls end for a short while, cuts the others, and returns
    /// when all of them are recorded: after this the gateway writes nothing more into the journal.
    pub async fn close(self) {
        self.tasks.closing.cancel();
        if tokio::time::timeout(self.close_grace, self.tasks.ended()).await.is_err() {
            self.tasks.abort.cancel();
            self.tasks.ended().await;
        }
    }
}

impl Drop for GatewayAttachment {
    fn drop(&mut self) {
        self.tasks.closing.cancel();
        self.tasks.abort.cancel();
    }
}

async fn accept(listener: TcpListener, desk: Desk, lanes: Arc<Lanes>) {
    let permits = Arc::new(Semaphore::new(desk.limits.connections));
    loop {
        let next = async {
            let permit = permits.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let Some((permit, accepted)) = desk.tasks.closing.run_until_cancelled(next).await else { return };
        match (permit, accepted) {
            (Ok(permit), Ok((stream, _))) => {
                if let Err(error) = hand_over(stream, &desk, &lanes, permit) {
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

/// Gives a connection to the next lane: a listener that many call would keep one busy and the others idle.
fn hand_over(stream: TcpStream, desk: &Desk, lanes: &Lanes, permit: OwnedSemaphorePermit) -> io::Result<()> {
    let (stream, lane) = (stream.into_std()?, lanes.next()?);
    let stream = {
        let _inside = lane.handle.enter();
        TcpStream::from_std(stream)?
    };
    let tasks = desk.tasks.on(lane);
    tasks.spawn(connection(stream, Arc::new(Desk { tasks: tasks.clone(), ..desk.clone() }), permit));
    Ok(())
}

async fn connection(stream: TcpStream, desk: Arc<Desk>, permit: OwnedSemaphorePermit) {
    // Without it a stream's small frames wait for acknowledgements, 40 ms each.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let tasks = desk.tasks.clone();
    let service = service_fn(move |request| service::serve(desk.clone(), request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => Some(ended),
        () = tasks.closing.cancelled() => None,
    };
    let ended = if ended.is_some() {
        ended
    } else {
        served.as_mut().graceful_shutdown();
        tasks.abort.run_until_cancelled(served).await
    };
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
    drop(permit);
}
