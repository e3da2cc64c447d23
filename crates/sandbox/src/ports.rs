//! TCP ports on which something listens inside a sandbox, and connections to them from the host.
//!
//! The host's kernel lists the sockets of the sandbox's network namespace, so nothing inside can hide from the list or
//! change it; only the names of processes are chosen by the sandbox.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use base::{DNS_PORT, EGRESS_PORT, MODEL_PORT};
use tokio::net::TcpStream;

use crate::SandboxError;

/// The most bytes of a socket list that are read. A line has about 150 bytes.
const MAX_LIST: usize = 4 << 20;
/// The most ports that are listed.
const MAX_PORTS: usize = 1024;
/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// Longest time to connect to a port inside the sandbox.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A TCP port on which something listens inside a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsidePort {
    /// The port.
    pub port: u16,
    /// The address inside the sandbox.
    pub address: IpAddr,
    /// The process id inside; `None` when it is not known.
    pub pid: Option<u32>,
    /// The name of the program, which it can choose freely.
    pub process: Option<String>,
}

/// Returns whether a port inside leads to the host: the model gateway, the egress proxy or the name server.
pub fn is_reserved_port(port: u16) -> bool {
    matches!(port, 0 | DNS_PORT | MODEL_PORT | EGRESS_PORT)
}

/// Returns the listening ports of the network namespace of `init`, a process id of the host, by port.
pub(crate) fn listening(init: i32) -> io::Result<Vec<InsidePort>> {
    let mut found = Vec::new();
    for name in ["tcp", "tcp6"] {
        found.extend(parse(&read_list(&format!("/proc/{init}/net/{name}"))?));
    }
    found.sort_by_key(|socket: &ListeningSocket| (socket.port, socket.address));
    found.dedup_by_key(|socket| (socket.port, socket.address));
    found.truncate(MAX_PORTS);
    let owners = if found.is_empty() { HashMap::new() } else { socket_owners(init) };
    Ok(found
        .into_iter()
        .map(|ListeningSocket { port, address, inode }| {
            let owner = owners.get(&inode).cloned();
            let (pid, process) = owner.map_or((None, None), |(pid, name)| (Some(pid), Some(name)));
            InsidePort { port, address, pid, process }
        })
        .collect())
}

#[derive(Debug, PartialEq, Eq)]
struct ListeningSocket {
    port: u16,
    address: IpAddr,
    inode: u64,
}

fn read_list(path: &str) -> io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    match std::fs::File::open(path) {
        // A kernel without IPv6 has no list of it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        file => drop(file?.take(MAX_LIST as u64).read_to_string(&mut text)?),
    }
    Ok(text)
}

/// Returns the listening sockets of a list that can be reached on the loopback and do not lead to the host.
fn parse(list: &str) -> Vec<ListeningSocket> {
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (*fields.get(1)?, *fields.get(3)?, *fields.get(9)?);
        let (address, port) = local.split_once(':')?;
        let (address, port) = (parse_address(address)?, u16::from_str_radix(port, 16).ok()?);
        let is_reachable = address.is_loopback() || address.is_unspecified();
        let is_listed = state == LISTEN && is_reachable && !is_reserved_port(port);
        is_listed.then_some(ListeningSocket { port, address, inode: inode.parse().ok()? })
    };
    list.lines().skip(1).filter_map(socket).collect()
}

/// Parses an address of the list: words of 32 bits in the byte order of the machine, as hexadecimal text.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words: Vec<u8> = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?);
            Some(address.to_ipv4_mapped().map_or(address.into(), IpAddr::from))
        }
        _ => None,
    }
}

/// Returns process id and program of the owners of sockets, by inode.
fn socket_owners(init: i32) -> HashMap<u64, (u32, String)> {
    let mut owners = HashMap::new();
    for (host_pid, process) in crate::processes::host_pids_below(init).unwrap_or_default() {
        // Another user's process can be listed, but not its descriptors.
        for entry in std::fs::read_dir(format!("/proc/{host_pid}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            let inode = target.to_str().and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']'));
            if let Some(inode) = inode.and_then(|inode| inode.parse().ok()) {
                owners.entry(inode).or_insert_with(|| (process.pid, process.program()));
            }
        }
    }
    owners
}

/// Waits until a socket is connected; fails unless its other end is `port` on the loopback. Code inside that took over init
/// could pass out another socket.
pub(crate) async fn finish_connecting(socket: OwnedFd, port: u16) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    let stream = TcpStream::from_std(stream)?;
    tokio::time::timeout(CONNECT_TIMEOUT, stream.writable()).await.map_err(|_| io::ErrorKind::TimedOut)??;
    match stream.take_error()? {
        Some(error) => Err(error),
        None if stream.peer_addr()?.port() != port || !stream.peer_addr()?.ip().is_loopback() => {
            Err(io::ErrorKind::ConnectionRefused.into())
        }
        None => Ok(stream),
    }
}

/// Returns the error of a backend that cannot connect to ports inside the sandbox.
pub(crate) fn cannot_connect() -> SandboxError {
    SandboxError::Unavailable {
        missing: "this sandbox backend cannot connect to ports inside".to_owned(),
        fix: "viv run --backend jail mock hello".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0
   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12 1 0 100 0 0 10 0
   2: 0100007F:0BB9 0100007F:0BB8 01 00000000:00000000 00:00000000 00000000  1000        0 13 1 0 100 0 0 10 0
   3: 0100007F:46A0 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 14 1 0 100 0 0 10 0
   4: 0200A8C0:0BBA 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 15 1 0 100 0 0 10 0
  broken
";

    #[test]
    fn only_loopback_listeners_that_do_not_lead_to_the_host_are_listed() {
        if cfg!(target_endian = "big") {
            return;
        }
        let found: Vec<_> = parse(LIST).iter().map(|socket| (socket.port, socket.inode)).collect();
        assert_eq!(found, [(3000, 11), (8080, 12)], "a connection, the model port and another address are left out");
    }

    #[test]
    fn addresses_of_both_families_are_parsed() {
        assert_eq!(parse_address("00000000000000000000000001000000"), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(parse_address("0000000000000000FFFF00000100007F"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(parse_address("0100007"), None);
    }
}
