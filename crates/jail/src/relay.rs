//! Loopback inside, a socket of the host outside: for a sandbox whose own kernel lets no descriptor out.
//!
//! What connects to a port inside is carried, byte for byte, to the one socket that is mounted for it; whose session
//! it is, that socket says. Nothing is read, kept or decided here.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{EGRESS_PORT, MODEL_PORT};

use crate::guest::GuestSocket;
use crate::setup::listen;

/// Enough for a copy; there are two such threads a connection.
const STACK: usize = 64 * 1024;

/// Listens on both ports and carries from then on. `door` is the directory of the sockets.
pub(crate) fn start(door: &Path) -> io::Result<()> {
    for (port, name) in [(MODEL_PORT, GuestSocket::MODELS), (EGRESS_PORT, GuestSocket::EGRESS)] {
        let listener = listen(port)?;
        let socket: Arc<PathBuf> = Arc::new(door.join(name));
        spawn(move || {
            for near in listener.incoming().flatten() {
                let socket = Arc::clone(&socket);
                // Without a thread for it the connection closes, as it would where nobody listens.
                let _ = spawn(move || drop(carry(&near, &socket)));
            }
        })?;
    }
    Ok(())
}

fn carry(near: &TcpStream, socket: &Path) -> io::Result<()> {
    // Without it the small parts of a stream wait for each other, 40 ms each.
    near.set_nodelay(true)?;
    let far = UnixStream::connect(socket)?;
    let (mut sent_near, mut sent_far) = (near.try_clone()?, far.try_clone()?);
    spawn(move || {
        let _ = io::copy(&mut sent_near, &mut sent_far);
        let _ = sent_far.shutdown(Shutdown::Write);
    })?;
    let (mut far, mut near) = (&far, near);
    let _ = io::copy(&mut far, &mut near);
    near.shutdown(Shutdown::Write)
}

/// A thread with a small stack.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().stack_size(STACK).spawn(work).map(drop)
}
