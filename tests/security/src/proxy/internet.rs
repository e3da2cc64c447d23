//! An internet in a network namespace: a few hosts, a name server, and a proxy in front of them, ours or a careless one.
//!
//! All addresses are on one loopback interface, because not every kernel has devices that join two namespaces. The proxy
//! is configured with the list of its own addresses; it is otherwise unchanged.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{careless, https};

/// The records of the name server. `rebind` resolves to another host each time.
const NAMES: [(&str, &str); 26] = [
    ("opened.example.com", "203.0.113.20"),
    ("impostor.example.com", "203.0.113.21"),
    ("keyed.example.com", "203.0.113.22"),
    ("files.example.com", "203.0.113.10"),
    ("paths.example.com", "203.0.113.10"),
    ("vault.example.com", "203.0.113.66"),
    ("files.example.com.vault.example.com", "203.0.113.66"),
    ("api.openai.com", "203.0.113.66"),
    ("inner.example.com", "10.9.9.9"),
    ("meta.example.com", "169.254.169.254"),
    ("loop.example.com", "127.0.0.1"),
    ("own.example.com", "198.51.100.1"),
    ("mapped.example.com", "::ffff:10.9.9.9"),
    ("six.example.com", "fd00::9"),
    ("loot.vault.example.com", "203.0.113.66"),
    ("retry.example.com", "203.0.113.23"),
    ("nat64.example.com", "64:ff9b::a09:909"),
    ("nat64-local.example.com", "64:ff9b:1::a09:909"),
    ("6to4.example.com", "2002:a09:909::1"),
    ("teredo.example.com", "2001:0:a09:909::1"),
    ("compatible.example.com", "::a09:909"),
    ("carrier.example.com", "100.64.0.9"),
    ("zero.example.com", "0.0.0.0"),
    ("wire.example.com", "168.63.129.16"),
    // The first address has no listener.
    ("mixed.example.com", "203.0.113.23"),
    ("mixed.example.com", "10.9.9.9"),
];
const REBINDING: &str = "rebind.example.com";

/// Further addresses on the loopback interface.
const ADDRESSES: [&str; 17] = [
    "203.0.113.10/32",
    "203.0.113.20/32",
    "203.0.113.21/32",
    "203.0.113.22/32",
    "203.0.113.23/32",
    "203.0.113.66/32",
    "100.64.0.9/32",
    "168.63.129.16/32",
    "64:ff9b::a09:909/128",
    "64:ff9b:1::a09:909/128",
    "2002:a09:909::1/128",
    "2001:0:a09:909::1/128",
    "::a09:909/128",
    "10.9.9.9/32",
    "169.254.169.254/32",
    "198.51.100.1/32",
    "fd00::9/128",
];
/// The public address of the proxy's host.
const OWN: &str = "198.51.100.1";
/// A host that serves an allowed and a forbidden name.
const SHARED: [&str; 2] = ["203.0.113.10:80", "203.0.113.10:443"];
/// Hosts that send the secret to every client.
const VAULTS: [&str; 19] = [
    "203.0.113.10:22",
    "203.0.113.66:80",
    "203.0.113.66:443",
    "10.9.9.9:80",
    "169.254.169.254:80",
    "127.0.0.1:80",
    "127.0.0.1:2468",
    "127.0.0.1:18080",
    "198.51.100.1:80",
    "[::1]:80",
    "[fd00::9]:80",
    "203.0.113.66:53",
    "100.64.0.9:80",
    "168.63.129.16:80",
    "[64:ff9b::a09:909]:80",
    "[64:ff9b:1::a09:909]:80",
    "[2002:a09:909::1]:80",
    "[2001:0:a09:909::1]:80",
    "[::a09:909]:80",
];
/// A host that echoes requests.
const ECHO: &str = "203.0.113.22:80";
/// A host that always sends a hello retry request.
const RETRYING: &str = "203.0.113.23:443";
/// The random value of a hello retry request (RFC 8446, section 4.1.3).
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// The name server for direct questions.
const NAME_SERVER: &str = "203.0.113.66:53";
/// The prefix of reports about data that arrived without a connection.
pub(super) const ARRIVED: &str = "arrived: ";
pub(super) const READY: &str = "ready";

const QUIET: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(2);

/// The process of the internet. Its standard input is the listener inside the sandbox.
///
/// `mode` is `ours`, `careless` or `direct`. With `direct`, the attack runs in this process.
pub(crate) fn live(mut arguments: impl Iterator<Item = String>) {
    let mode = arguments.next().unwrap_or_default();
    let secret = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    crate::trial::enter_network().expect("a network namespace");
    ip(&["link", "set", "lo", "up"]);
    for address in ADDRESSES {
        // Without duplicate address detection, which takes a second.
        let nodad = if address.contains(':') { &["nodad"][..] } else { &[] };
        ip(&[&["address", "add", address, "dev", "lo"], nodad].concat());
    }
    for address in VAULTS.iter().filter(|address| address.starts_with('[')) {
        wait_for_route(address);
    }
    serve_hosts(&secret);
    let roots = https::serve(&secret);
    match mode.as_str() {
        "ours" => super::ours::serve(listener(), &rest[0], roots, &secret),
        "careless" => careless::serve(&listener(), &secret),
        _ => {
            let program = std::env::current_exe().expect("program");
            Command::new(program).args(rest).status().expect("control");
        }
    }
}

/// Waits until the kernel has added the route to an IPv6 address. No socket listens yet, so a connection is refused when
/// the route exists.
fn wait_for_route(address: &str) {
    testkit::wait_until(&format!("a route to {address}"), || match TcpStream::connect(address) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
    });
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).status();
    assert!(done.as_ref().is_ok_and(std::process::ExitStatus::success), "ip {arguments:?}: {done:?}");
}

fn listener() -> TcpListener {
    let listener: OwnedFd = io::stdin().as_fd().try_clone_to_owned().expect("listener");
    println!("{READY}");
    listener.into()
}

/// Returns the addresses of a name.
pub(super) fn resolve(name: &str) -> Vec<IpAddr> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    println!("{ARRIVED}a question for {name}");
    if name == REBINDING {
        let turn = ASKED.fetch_add(1, Ordering::Relaxed);
        let address = if turn.is_multiple_of(2) { "203.0.113.10" } else { "10.9.9.9" };
        return address.parse().into_iter().collect();
    }
    NAMES.iter().filter(|(known, _)| *known == name).filter_map(|(_, address)| address.parse().ok()).collect()
}

/// Returns whether an address belongs to the proxy's host.
pub(super) fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified() || address.to_string() == OWN
}

fn serve_hosts(secret: &str) {
    let secret: Arc<str> = secret.into();
    for address in VAULTS {
        serve(address, secret.clone(), |_| true);
    }
    serve(SHARED[0], secret.clone(), |said| has(said, "vault"));
    let echo = TcpListener::bind(ECHO).expect("host");
    std::thread::spawn(move || echo.incoming().flatten().for_each(|stream| drop(repeat(stream))));
    let retrying = TcpListener::bind(RETRYING).expect("host");
    let told = secret.clone();
    std::thread::spawn(move || retrying.incoming().flatten().for_each(|stream| drop(retry(stream, &told))));
    let fronted = |said: &[u8]| said[0] != 22 || has(said, "vault") || !has(said, "files.example.com");
    serve(SHARED[1], secret, fronted);
    let name_server = UdpSocket::bind(NAME_SERVER).expect("name server");
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, asker)) = name_server.recv_from(&mut question) {
            println!("{ARRIVED}{}", String::from_utf8_lossy(&question[..length]));
            let _ = name_server.send_to(b"loot", asker);
        }
    });
}

/// Sends the request back as the answer's body, or the requested range of it.
fn repeat(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let count = stream.read(&mut buffer)?;
    let said = String::from_utf8_lossy(&buffer[..count]).to_lowercase();
    let range = said.split_once("range: bytes=").and_then(|(_, rest)| rest.lines().next()?.split_once('-'));
    let range = range.and_then(|(from, to)| Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()? + 1)));
    let (status, (from, to)) = range.map_or(("200 OK", (0, count)), |range| ("206 Partial Content", range));
    let part = &buffer[from.min(count)..to.min(count)];
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", part.len());
    stream.write_all(&[head.as_bytes(), part].concat())
}

/// Sends a hello retry request, and the secret when the second hello names a vault.
fn retry(mut stream: TcpStream, secret: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(LONG))?;
    let mut buffer = [0; 4096];
    if stream.read(&mut buffer)? == 0 {
        return Ok(());
    }
    let hello = [&[2, 0, 0, 40, 3, 3][..], &RETRY_RANDOM, &[0, 0x13, 0x01, 0, 0, 0]].concat();
    stream.write_all(&[&[22, 3, 3, 0, 44][..], &hello].concat())?;
    let count = stream.read(&mut buffer)?;
    stream.write_all(if has(&buffer[..count], "vault") { secret.as_bytes() } else { b"ok" })
}

fn has(said: &[u8], word: &str) -> bool {
    said.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Serves one host, which sends the secret when `tells` is true for a request.
fn serve(address: &str, secret: Arc<str>, tells: fn(&[u8]) -> bool) {
    let address: SocketAddr = address.parse().expect("address");
    let listener = TcpListener::bind(address).expect("host");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let secret = secret.clone();
            std::thread::spawn(move || answer(stream, &secret, tells));
        }
    });
}

fn answer(mut stream: TcpStream, secret: &str, tells: fn(&[u8]) -> bool) -> io::Result<()> {
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    stream.set_read_timeout(Some(LONG))?;
    // All bytes without a pause count, including those behind the first request.
    while let Ok(count) = stream.read(&mut buffer) {
        said.extend_from_slice(&buffer[..count]);
        stream.set_read_timeout(Some(QUIET))?;
        if count == 0 || tells(&said) {
            break;
        }
    }
    let moved = "HTTP/1.1 302 Found\r\nLocation: http://vault.example.com/\r\nContent-Length: 0\r\n\r\n";
    let told = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let text = match said.is_empty() {
        false if tells(&said) => told(secret),
        false if has(&said, "/moved") => moved.to_owned(),
        _ => told("ok"),
    };
    stream.write_all(text.as_bytes())
}
