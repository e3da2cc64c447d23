//! The peer of a connection: a TCP client, or a process of the same user on the Unix socket.

/// The peer of a connection; an extension of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// An unknown process over TCP.
    Tcp,
    /// A process of the user that runs this server, as the kernel reports it.
    SameUser,
}
