//! Messages with descriptors between host, spawner and init.
//!
//! One SEQPACKET datagram a message, JSON inside; a message too long for one travels in a memfd.

use std::io::{self, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::MemfdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Descriptors one message can carry, besides that of a long message.
pub(crate) const MAX_FDS: usize = 32;
/// What fits a datagram with default socket buffers, with room to spare.
const MAX_INLINE: usize = 32 * 1024;

/// Two connected sockets that keep message borders.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends `message` with `fds`.
pub(crate) fn send(socket: impl AsFd, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() <= MAX_INLINE {
        return send_bytes(socket.as_fd(), &bytes, fds);
    }
    let mut file = std::fs::File::from(rustix::fs::memfd_create(c"viv-message", MemfdFlags::CLOEXEC)?);
    file.write_all(&bytes)?;
    let all: Vec<_> = std::iter::once(file.as_fd()).chain(fds.iter().copied()).collect();
    // An empty datagram means: the message is in the first descriptor. A zero-length one would read as EOF.
    send_bytes(socket.as_fd(), b" ", &all)
}

fn send_bytes(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    loop {
        match rustix::net::sendmsg(socket, &[io::IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            // The host reads its end without blocking, which makes sending not block either.
            Err(rustix::io::Errno::AGAIN) => {
                rustix::event::poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives one message with its descriptors; `None` when the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_INLINE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            // The other end went without having read all of ours, which is told once and before what it had said.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut fds: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    bytes.truncate(received.bytes);
    if bytes == b" " && !fds.is_empty() {
        let mut file = std::fs::File::from(fds.remove(0));
        file.rewind()?;
        bytes.clear();
        file.read_to_end(&mut bytes)?;
    }
    Ok(Some((serde_json::from_slice(&bytes)?, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_heard_though_the_other_end_left_something_unread() {
        let (ours, theirs) = pair().unwrap();
        send(&ours, &"unread", &[]).unwrap();
        send(&theirs, &"last words", &[]).unwrap();
        drop(theirs);
        let heard = || receive::<String>(&ours).unwrap().map(|(message, _)| message);
        assert_eq!((heard().as_deref(), heard()), (Some("last words"), None));
    }
}
