//! A session's listener, served until it is closed.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    session_proxy::{self, Desk},
    connector::Gate,
    identity::EgressIdentity,
    internet::Internet,
    dns::Names,
    attempt_recorder::Recorder,
    totals::Counters,
};

/// How long to wait when the system has no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves one session's listener.
///
/// Dropped, it stops at once: running connections are cut, and recorded as far as they came.
#[derive(Debug)]
#[must_use = "dropping it closes the session's way out"]
pub struct EgressAttachment {
    closing: CancellationToken,
    /// The task that accepts, which owns those that serve, and the one that records.
    tasks: TaskTracker,
}

impl EgressAttachment {
    pub(crate) fn serve(
        listener: std::net::TcpListener,
        identity: EgressIdentity,
        internet: Arc<dyn Internet>,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let (recorder, recording) = Recorder::new(identity.journal, counters, identity.limits.repeat_window);
        let gate = Gate::new(identity.policy, internet, identity.limits);
        let EgressIdentity { session, turn, credentials: outfit, dns: names, .. } = identity;
        let names = names.map(Names::new).transpose()?;
        let desk = Arc::new(Desk { session, turn, gate, recorder, outfit });
        let (closing, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn_on(recording, &runtime);
        if let Some(names) = names {
            tasks.spawn_on(names.serve(desk.clone(), closing.clone()), &runtime);
        }
        tasks.spawn_on(accept(listener, desk, closing.clone()), &runtime);
        Ok(Self { closing, tasks })
    }

    /// Takes no more connections, cuts those that run, and returns when all of them are recorded: after this
    /// the proxy writes nothing more into the journal.
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

async fn accept(listener: TcpListener, desk: Arc<Desk>, closing: CancellationToken) {
    let limit = desk.gate.limits.connections;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = closing.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < limit => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, desk.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, session = %desk.session, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, desk: Arc<Desk>) {
    // Without it small frames wait for acknowledgements, 40 ms each.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    if let Err(error) = session_proxy::serve(stream, &desk).await {
        tracing::debug!(%error, session = %desk.session, "a connection ended badly");
    }
}
