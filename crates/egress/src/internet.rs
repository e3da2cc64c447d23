//! The world outside, as a port: names, addresses, connections.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket},
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
    fn is_local(&self, address: IpAddr) -> bool;
    /// Calls exactly this address.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;
}

/// Names of this machine's own. They are looked for here, because there no name has a dot at its end.
const HOSTS: &str = "/etc/hosts";

/// The internet as this machine reaches it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemInternet;

impl Internet for SystemInternet {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let name = name.to_owned();
        Box::pin(async move {
            let lookup = move || {
                let listed = std::fs::read_to_string(HOSTS).map(|text| listed(&text, &name)).unwrap_or_default();
                if !listed.is_empty() {
                    return Ok(listed);
                }
                // With a dot at its end it is the name that was allowed: without one, this machine's search domains
                // would make another of it.
                let found = (format!("{name}."), 0).to_socket_addrs()?;
                let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
                addresses.dedup();
                Ok(addresses)
            };
            tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
        })
    }

    fn is_local(&self, address: IpAddr) -> bool {
        // Only an address of this machine can be bound. Whatever else goes wrong counts as own: refused.
        let bound = UdpSocket::bind((address, 0));
        !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect(address))
    }
}

/// The addresses that the text of such a file gives a name.
fn listed(hosts: &str, name: &str) -> Vec<IpAddr> {
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let addresses = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_hosts_file_is_that_name_and_no_other() {
        let hosts =
            "127.0.0.1 localhost\n203.0.113.7\tFiles.example.com files # mirror.example.com\n::1 localhost\nx y\n";
        let found = |name: &str| listed(hosts, name).iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(found("files.example.com"), ["203.0.113.7"]);
        assert_eq!(found("localhost"), ["127.0.0.1", "::1"]);
        assert!(found("mirror.example.com").is_empty() && found("example.com").is_empty() && found("y").is_empty());
    }

    #[test]
    fn only_addresses_of_this_machine_are_its_own() {
        let own = |text: &str| SystemInternet.is_local(text.parse().unwrap());
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
