//! The relay of a container that has its own kernel: from loopback ports inside to sockets of the host.
//!
//! A listener cannot be passed out of such a container. So each connection to a port inside is copied, byte for byte, to
//! the socket that is mounted for that port. The relay does not interpret the bytes.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{EGRESS_PORT, MODEL_PORT};

use crate::container_init::InitSocket;
use crate::setup::listen;

/// The stack of a thread that copies bytes. Each connection has two such threads.
const STACK: usize = 64 * 1024;

/// Starts to relay both ports. `directory` holds the sockets.
pub(crate) fn start(directory: &Path) -> io::Result<()> {
    for (port, name) in [(MODEL_PORT, InitSocket::MODELS), (EGRESS_PORT, InitSocket::EGRESS)] {
        let listener = listen(port)?;
        let socket: Arc<PathBuf> = Arc::new(directory.join(name));
        spawn(move || {
            for inside in listener.incoming().flatten() {
                let socket = Arc::clone(&socket);
                // When no thread can be started, the connection is closed.
                let _ = spawn(move || drop(relay(&inside, &socket)));
            }
        })?;
    }
    Ok(())
}

fn relay(inside: &TcpStream, socket: &Path) -> io::Result<()> {
    // Without nodelay, small writes of a stream wait 40 ms for each other.
    inside.set_nodelay(true)?;
    let outside = UnixStream::connect(socket)?;
    let (mut from_inside, mut to_outside) = (inside.try_clone()?, outside.try_clone()?);
    spawn(move || {
        let _ = io::copy(&mut from_inside, &mut to_outside);
        let _ = to_outside.shutdown(Shutdown::Write);
    })?;
    let (mut outside, mut inside) = (&outside, inside);
    let _ = io::copy(&mut outside, &mut inside);
    inside.shutdown(Shutdown::Write)
}

/// Starts a thread with a small stack.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().stack_size(STACK).spawn(work).map(drop)
}
