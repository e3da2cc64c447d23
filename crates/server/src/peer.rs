//! Who is at the other end of a connection.

/// Who is at the other end of a connection; an extension of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Anybody who can connect.
    Tcp,
    /// A process of the user that runs this server, by the word of the kernel.
    SameUser,
}
