//! Messages with descriptors between host, spawner and init.
//!
//! Each message is JSON in one SEQPACKET datagram. A message that is too long for a datagram is sent as a memfd.

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

/// The most descriptors of one message, not counting the memfd of a long message.
pub(crate) const MAX_FDS: usize = 32;
/// The most bytes of a datagram. This fits default socket buffers.
const MAX_INLINE: usize = 32 * 1024;

/// Returns two connected sockets that keep message boundaries.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
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
    // A datagram of one space means that the message is in the first descriptor. An empty datagram would read as EOF.
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
            // The host's end does not block on reads, so sends do not block either.
            Err(rustix::io::Errno::AGAIN) => {
                rustix::event::poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives one message with its descriptors; returns `None` when the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_INLINE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            // `CONNRESET`: the other end closed without reading all of our messages. The kernel reports this once, before
            // the messages that are still to be received.
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
    fn messages_are_received_although_the_other_end_closed_with_unread_data() {
        let (ours, theirs) = socket_pair().unwrap();
        send(&ours, &"unread", &[]).unwrap();
        send(&theirs, &"last message", &[]).unwrap();
        drop(theirs);
        let next = || receive::<String>(&ours).unwrap().map(|(message, _)| message);
        assert_eq!((next().as_deref(), next()), (Some("last message"), None));
    }
}
