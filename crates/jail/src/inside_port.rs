//! Connections of the host to a port on the loopback inside a sandbox.
//!
//! Init makes the socket, because a socket belongs to the network namespace in which it was made, and passes it out. The
//! sandbox gets no network: the host can reach the loopback inside, nothing inside can reach the host.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

/// Begins a connection to `port` on 127.0.0.1, or on ::1 if nothing listens there. Never blocks: a listener that accepts
/// nothing must not keep init from its work. The socket may still be connecting.
pub(crate) fn connect(port: u16) -> io::Result<OwnedFd> {
    let refused = match begin(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
        Err(Errno::CONNREFUSED) => Errno::CONNREFUSED,
        begun => return Ok(begun?),
    };
    begin(SocketAddr::from((Ipv6Addr::LOCALHOST, port))).map_err(|_| refused.into())
}

fn begin(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match rustix::net::connect(&socket, &address) {
        // On the loopback, a refusal is known at once.
        Ok(()) | Err(Errno::INPROGRESS) => match sockopt::socket_error(&socket)? {
            Ok(()) => Ok(socket),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Returns whether a descriptor that a sandbox passed out is a TCP socket. Code inside that took over init could pass out
/// something else.
pub(crate) fn is_tcp(socket: impl AsFd) -> bool {
    sockopt::socket_type(&socket) == Ok(SocketType::STREAM)
        && sockopt::socket_protocol(&socket) == Ok(Some(ipproto::TCP))
        && matches!(sockopt::socket_domain(&socket), Ok(AddressFamily::INET | AddressFamily::INET6))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_a_tcp_socket_is_accepted_from_a_sandbox() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = connect(port).unwrap();
        listener.accept().unwrap();
        assert!(is_tcp(&socket));
        assert!(!is_tcp(UnixStream::pair().unwrap().0));
        assert!(!is_tcp(UdpSocket::bind("127.0.0.1:0").unwrap()));
        assert!(!is_tcp(std::fs::File::open("/dev/null").unwrap()));
    }

    #[test]
    fn a_port_without_a_listener_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        assert_eq!(connect(port).unwrap_err().raw_os_error(), Some(libc::ECONNREFUSED));
    }
}
