//! The port to the network outside: name lookups and connections.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket},
};

use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

/// The network behind the proxy.
///
/// The proxy resolves a name only after the policy allowed the name, and connects to an address only after the policy
/// allowed the address. Implementations decide nothing.
pub trait Internet: Send + Sync {
    /// Returns the addresses of a name, in the order to try them.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
    /// Returns whether an address belongs to this machine.
    fn is_local(&self, address: IpAddr) -> bool;
    /// Connects to exactly this address.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;
}

/// The hosts file. Read directly, because DNS lookups use a trailing dot, which this file does not have.
const HOSTS: &str = "/etc/hosts";

/// The network of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemInternet;

impl Internet for SystemInternet {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let name = name.to_owned();
        Box::pin(async move {
            let lookup = move || {
                let listed =
                    std::fs::read_to_string(HOSTS).map(|text| addresses_in_hosts(&text, &name)).unwrap_or_default();
                if !listed.is_empty() {
                    return Ok(listed);
                }
                // The trailing dot keeps the machine's search domains from turning the allowed name into another one.
                let found = (format!("{name}."), 0).to_socket_addrs()?;
                let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
                addresses.dedup();
                Ok(addresses)
            };
            tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
        })
    }

    fn is_local(&self, address: IpAddr) -> bool {
        // Only local addresses can be bound. Any other error counts as local, so that the address is refused.
        let bound = UdpSocket::bind((address, 0));
        !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect(address))
    }
}

/// Returns the addresses of `name` in the text of a hosts file.
fn addresses_in_hosts(hosts: &str, name: &str) -> Vec<IpAddr> {
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
    fn hosts_file_names_match_exactly() {
        let hosts =
            "127.0.0.1 localhost\n203.0.113.7\tFiles.example.com files # mirror.example.com\n::1 localhost\nx y\n";
        let found = |name: &str| addresses_in_hosts(hosts, name).iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(found("files.example.com"), ["203.0.113.7"]);
        assert_eq!(found("localhost"), ["127.0.0.1", "::1"]);
        assert!(found("mirror.example.com").is_empty() && found("example.com").is_empty() && found("y").is_empty());
    }

    #[test]
    fn only_addresses_of_this_machine_are_local() {
        let own = |text: &str| SystemInternet.is_local(text.parse().unwrap());
        assert!(own("127.0.0.1") && own("127.1.2.3") && own("0.0.0.0"));
        assert!(!own("203.0.113.1"));
    }

    #[tokio::test]
    async fn localhost_resolves_to_loopback() {
        let found = SystemInternet.resolve("localhost").await.unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }

    #[tokio::test]
    async fn connects_to_the_given_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = SystemInternet.connect(address).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    }
}
