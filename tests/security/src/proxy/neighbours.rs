//! Connections to private addresses in disguise.

use std::io::{Read, Write};

use super::Run;
use super::say::{get, hear, to_proxy};
use crate::attack::Verdict;

/// Address types of SOCKS5.
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Name, description and function of each attack.
pub(super) const ATTACKS: &[(&str, &str, Run)] = &[
    ("proxy_name_nat64", "a listed name of a private IPv4 address behind a NAT64", |_| by_name("nat64")),
    ("proxy_name_nat64_local", "the same behind one of the host's own network", |_| by_name("nat64-local")),
    ("proxy_name_6to4", "the same behind a 6to4 relay", |_| by_name("6to4")),
    ("proxy_name_teredo", "the same behind a Teredo server", |_| by_name("teredo")),
    ("proxy_name_compatible", "the same in an IPv6 address as they were first written", |_| by_name("compatible")),
    ("proxy_name_shared", "a listed name of an address that a provider shares", |_| by_name("carrier")),
    ("proxy_name_zero", "a listed name of 0.0.0.0, which is this machine", |_| by_name("zero")),
    ("proxy_name_wire", "a listed name of a metadata service at an address that is not private", |_| by_name("wire")),
    ("proxy_name_mixed", "a listed name of two hosts: one does not answer, the other is private", |_| by_name("mixed")),
    ("proxy_socks_address", "give SOCKS5 an address, and no name to be judged", |_| socks(IPV4, &[203, 0, 113, 66])),
    ("proxy_socks_mapped", "give it a private IPv4 address in an IPv6 one", |_| {
        socks(IPV6, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 9, 9])
    }),
    ("proxy_socks_loopback_6", "give it the loopback in IPv6", |_| {
        socks(IPV6, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    }),
    ("proxy_socks_text", "give it a private address as if it were a name", |_| socks(NAME, b"\x0810.9.9.9")),
];

fn by_name(name: &str) -> Verdict {
    get(&format!("http://{name}.example.com/"), &format!("{name}.example.com"))
}

/// Connects through SOCKS5 to port 80 of an address of the given type, and requests a page.
fn socks(kind: u8, host: &[u8]) -> Verdict {
    let mut stream = to_proxy();
    let asked = [&[5, 1, 0, 5, 1, 0, kind], host, &80_u16.to_be_bytes()].concat();
    let mut reply = [0; 12];
    let heard = stream.write_all(&asked).and_then(|()| stream.read_exact(&mut reply));
    if heard.is_err() || reply[3] != 0 {
        return Verdict::Blocked(format!("{heard:?}, {reply:?}"));
    }
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: loot\r\n\r\n");
    Verdict::Blocked(format!("{sent:?}, {} bytes", hear(stream).len()))
}
