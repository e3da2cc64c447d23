//! The host's end of the port relay for a container with its own kernel: from two mounted sockets to two TCP listeners.
//!
//! The gateway and the egress proxy accept TCP from every sandbox. So a thread enters a new network namespace with nothing
//! but loopback, listens there, and forwards connections from the sockets to the listeners. No other process is in that
//! network.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// The pause after a connection could not be accepted.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A running bridge. It stops when this is dropped.
pub(super) struct PortBridge {
    /// Dropping this sender stops the bridge's thread.
    _stop: oneshot::Sender<()>,
}

/// The listeners of a bridge: models, then egress.
pub(super) type BridgeListeners = [TcpListener; 2];

impl PortBridge {
    /// Starts a bridge from `sockets`, models first. Returns when its listeners are ready.
    pub(super) fn start(sockets: [UnixListener; 2]) -> io::Result<(Self, BridgeListeners)> {
        let (stop, stopped) = oneshot::channel();
        let (ready_sender, ready) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("viv-bridge".to_owned()).spawn(move || {
            let opened = open();
            let targets = opened.as_ref().ok().map(|(_, targets)| *targets);
            // The receiver below waits for this message.
            let _ = ready_sender.send(opened);
            if let Some(targets) = targets {
                // When no runtime can be made, the sockets close with this thread.
                let _ = forward_all(sockets, targets, stopped);
            }
        })?;
        let (listeners, _) = ready.recv().map_err(io::Error::other)??;
        Ok((Self { _stop: stop }, listeners))
    }
}

/// Moves this thread into its own network; returns two listeners there and their addresses.
fn open() -> io::Result<(BridgeListeners, [SocketAddr; 2])> {
    jail::isolate_network()?;
    let listeners = [jail::listen(0)?, jail::listen(0)?];
    let targets = [listeners[0].local_addr()?, listeners[1].local_addr()?];
    Ok((listeners, targets))
}

/// Forwards connections until the bridge is dropped. Every TCP socket made here belongs to the thread's own network.
fn forward_all(sockets: [UnixListener; 2], targets: [SocketAddr; 2], stopped: oneshot::Receiver<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let mut forwarders = JoinSet::new();
        for (socket, target) in sockets.into_iter().zip(targets) {
            socket.set_nonblocking(true)?;
            forwarders.spawn(forward(tokio::net::UnixListener::from_std(socket)?, target));
        }
        // Nothing is ever sent; the wait ends when the sender is dropped.
        let _ = stopped.await;
        Ok(())
    })
}

async fn forward(socket: tokio::net::UnixListener, target: SocketAddr) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = socket.accept() => {
                let Ok((mut from, _)) = accepted else {
                    // No descriptor is free at the moment.
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                };
                connections.spawn(async move {
                    let mut to = TcpStream::connect(target).await?;
                    to.set_nodelay(true)?;
                    tokio::io::copy_bidirectional(&mut from, &mut to).await.map(drop)
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
