//! The host's end of a sandbox whose kernel passes no listener out: from two mounted sockets to two listeners.
//!
//! Whoever serves a sandbox accepts TCP, whatever made it. So a thread of its own, in a network of its own with nothing
//! but loopback, carries what comes in by the sockets to listeners there. Nobody else is in that network.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// How long after a connection that could not be accepted the next is tried.
const AGAIN: Duration = Duration::from_millis(50);

/// Runs for as long as it is held.
pub(super) struct Bridge {
    /// Its other end hears when this one is gone.
    _hold: oneshot::Sender<()>,
}

/// Where both ways arrive: models and everything else.
pub(super) type Arrivals = [TcpListener; 2];

impl Bridge {
    /// From `sockets`, models first. Waits until the listeners are there.
    pub(super) fn start(sockets: [UnixListener; 2]) -> io::Result<(Self, Arrivals)> {
        let (hold, let_go) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("viv-bridge".to_owned()).spawn(move || {
            let opened = open();
            let targets = opened.as_ref().ok().map(|(_, targets)| *targets);
            // Whoever asked waits for it.
            let _ = tell.send(opened);
            if let Some(targets) = targets {
                // A runtime that cannot be made leaves nobody behind the sockets: they close with this thread.
                let _ = carry_all(sockets, targets, let_go);
            }
        })?;
        let (listeners, _) = told.recv().map_err(io::Error::other)??;
        Ok((Self { _hold: hold }, listeners))
    }
}

/// Two listeners in a network that only this thread has, and where they are.
fn open() -> io::Result<(Arrivals, [SocketAddr; 2])> {
    jail::leave_network()?;
    let listeners = [jail::listen(0)?, jail::listen(0)?];
    let targets = [listeners[0].local_addr()?, listeners[1].local_addr()?];
    Ok((listeners, targets))
}

/// Carries until nobody holds the bridge any more. Every socket made here belongs to the thread's own network.
fn carry_all(sockets: [UnixListener; 2], targets: [SocketAddr; 2], let_go: oneshot::Receiver<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let mut ways = JoinSet::new();
        for (socket, target) in sockets.into_iter().zip(targets) {
            socket.set_nonblocking(true)?;
            ways.spawn(carry(tokio::net::UnixListener::from_std(socket)?, target));
        }
        // It is never sent to; it ends when it is dropped.
        let _ = let_go.await;
        Ok(())
    })
}

async fn carry(socket: tokio::net::UnixListener, target: SocketAddr) {
    let mut carried = JoinSet::new();
    loop {
        tokio::select! {
            accepted = socket.accept() => {
                let Ok((mut from, _)) = accepted else {
                    // No descriptor is free; one may be soon.
                    tokio::time::sleep(AGAIN).await;
                    continue;
                };
                carried.spawn(async move {
                    let mut to = TcpStream::connect(target).await?;
                    to.set_nodelay(true)?;
                    tokio::io::copy_bidirectional(&mut from, &mut to).await.map(drop)
                });
            }
            Some(_) = carried.join_next() => {}
        }
    }
}
