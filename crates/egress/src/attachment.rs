//! The tasks that serve one session's listener until it is closed.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    attempt_recorder::AttemptRecorder,
    connector::Connector,
    dns::DnsServer,
    identity::EgressIdentity,
    internet::Internet,
    session_proxy::{self, SessionProxy},
    totals::EgressCounters,
};

/// Pause after a failed accept, usually because the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Memory that each connection needs: the head of a request, and a small buffer for each direction.
const CONNECTION_BYTES: usize = 64 << 10;
/// The answer to a connection for which the session has no memory left.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Handle of the tasks that serve one session's listener.
///
/// Dropping it closes all connections at once. Their partial traffic is recorded.
#[derive(Debug)]
#[must_use = "dropping it closes the session's network access"]
pub struct EgressAttachment {
    closing: CancellationToken,
    /// The accepting task, which owns the connection tasks, the recording task and the DNS server.
    tasks: TaskTracker,
}

impl EgressAttachment {
    pub(crate) fn serve(
        listener: std::net::TcpListener,
        identity: EgressIdentity,
        internet: Arc<dyn Internet>,
        counters: Arc<EgressCounters>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let (recorder, recording) = AttemptRecorder::new(identity.journal, counters, identity.limits.repeat_window);
        let connector = Connector::new(identity.policy, internet, identity.limits);
        let EgressIdentity { session, turn, credentials, dns: names, in_flight, .. } = identity;
        let names = names.map(DnsServer::new).transpose()?;
        let proxy = Arc::new(SessionProxy { session, turn, connector, recorder, credentials, in_flight });
        let (closing, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn_on(recording, &runtime);
        if let Some(names) = names {
            tasks.spawn_on(names.serve(proxy.clone(), closing.clone()), &runtime);
        }
        tasks.spawn_on(accept(listener, proxy, closing.clone()), &runtime);
        Ok(Self { closing, tasks })
    }

    /// Closes the listener and all connections, and returns when they are recorded. After this the proxy writes nothing
    /// more into the journal.
    pub async fn close(self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for EgressAttachment {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

async fn accept(listener: TcpListener, proxy: Arc<SessionProxy>, closing: CancellationToken) {
    let limit = proxy.connector.limits.connections;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = closing.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < limit => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, proxy.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, session = %proxy.session, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, proxy: Arc<SessionProxy>) {
    // Without TCP_NODELAY small writes can wait 40 ms for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    // Returned when the connection has ended.
    let mut reserved = proxy.in_flight.reservation();
    if let Err(full) = reserved.grow(CONNECTION_BYTES, proxy.connector.limits.head_timeout).await {
        tracing::warn!(session = %proxy.session, "refused a connection: {full}");
        // Best effort: the answer is short, and the connection is new.
        let _ = stream.try_write(TOO_MANY);
        return;
    }
    if let Err(error) = session_proxy::serve(stream, &proxy).await {
        tracing::debug!(%error, session = %proxy.session, "connection failed");
    }
}
