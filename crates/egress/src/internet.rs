//! The world outside, as a port: names, addresses, connections.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
};

use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

/// What lies behind the proxy.
///
/// It is asked for a name only after the policy allowed that name, and to connect only to an address that
/// the policy allowed. It decides nothing itself.
pub trait Internet: Send + Sync {
    /// The addresses of a name, in the order they should be tried.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
    /// Whether an address is one of this machine's own.
    fn is_own(&self, address: IpAddr) -> bool;
    /// Calls exactly this address.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;
}

/// The internet as this machine reaches it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemInternet;

impl Internet for SystemInternet {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }

    fn is_own(&self, address: IpAddr) -> bool {
        // Only an address of this machine can be bound. Whatever else goes wrong counts as own: refused.
        let bound = UdpSocket::bind((address, 0));
        !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_its_own() {
        let own = |text: &str| SystemInternet.is_own(text.parse().unwrap());
        assert!(own("127.0.0.1") && own("127.1.2.3") && own("0.0.0.0"));
        assert!(!own("203.0.113.1"));
    }

    #[tokio::test]
    async fn names_are_looked_up_as_this_machine_does() {
        let found = SystemInternet.resolve("localhost").await.unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }

    #[tokio::test]
    async fn what_is_connected_is_the_address_that_was_given() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = SystemInternet.connect(address).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    }
}
