//! Changing the sandbox's own network: interfaces, addresses, routes, ports below 1024.

use std::io;
use std::net::TcpListener;

use rustix::net::{AddressFamily, SocketType};

use crate::attack::{Attack, Control, Group::Net, Verdict, program};
use crate::lead::Lead;
use crate::raw::{self, Arg};

pub(crate) fn attacks() -> Vec<Attack> {
    let alone = |attack: Attack| attack.shown(Control::Namespaced);
    vec![
        alone(program(Net, "net_low_port", "listen on a port below 1024", low_port)),
        alone(program(Net, "net_interface_address", "give an interface another address", interface_address)),
        alone(program(Net, "net_interface_flags", "switch an interface to promiscuous", interface_flags)),
        alone(program(Net, "net_netlink_address", "the same by netlink", netlink_address)),
        alone(program(Net, "net_netlink_route", "make a route by netlink", netlink_route)),
        alone(program(Net, "net_netlink_interface", "make an interface by netlink", netlink_interface)),
        alone(program(Net, "net_namespace_new", "make a network of one's own", |_| {
            Verdict::of("unshare", raw::unshare(libc::CLONE_NEWNET))
        })),
    ]
}

fn low_port(_: &Lead) -> Verdict {
    Verdict::any([80, 443, 53].map(|port| Verdict::of("bind", TcpListener::bind(("0.0.0.0", port)))))
}

fn datagram_socket() -> std::os::fd::OwnedFd {
    rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).expect("socket")
}

/// `struct ifreq` for `lo`: sixteen bytes of name, then the request's value.
fn request(rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes[..2].copy_from_slice(b"lo");
    bytes[16..16 + rest.len()].copy_from_slice(rest);
    bytes
}

fn interface_address(_: &Lead) -> Verdict {
    // sockaddr_in: family, port, address 10.9.8.7.
    let mut wanted = libc::AF_INET.to_ne_bytes()[..2].to_vec();
    wanted.extend([0, 0, 10, 9, 8, 7]);
    let mut bytes = request(&wanted);
    Verdict::of("SIOCSIFADDR", raw::ioctl(datagram_socket(), libc::SIOCSIFADDR, Arg::Buffer(&mut bytes)))
}

fn interface_flags(_: &Lead) -> Verdict {
    let flags = i16::try_from(libc::IFF_UP | libc::IFF_PROMISC).expect("flags");
    let mut bytes = request(&flags.to_ne_bytes());
    Verdict::of("SIOCSIFFLAGS", raw::ioctl(datagram_socket(), libc::SIOCSIFFLAGS, Arg::Buffer(&mut bytes)))
}

fn netlink_address(_: &Lead) -> Verdict {
    // ifaddrmsg: IPv4, prefix 32, flags, scope, index 1; then its local address and its own.
    let mut body = vec![2, 32, 0, 0, 1, 0, 0, 0];
    body.extend([attribute(2, &[10, 9, 8, 7]), attribute(1, &[10, 9, 8, 7])].concat());
    Verdict::of("RTM_NEWADDR", change(libc::RTM_NEWADDR, &body))
}

fn netlink_route(_: &Lead) -> Verdict {
    // rtmsg: IPv4, destination 32, source 0, tos, main table, by boot, everywhere, into a black hole; flags.
    let mut body = vec![2, 32, 0, 0, 254, 3, 0, 6, 0, 0, 0, 0];
    body.extend(attribute(1, &[10, 9, 8, 7]));
    Verdict::of("RTM_NEWROUTE", change(libc::RTM_NEWROUTE, &body))
}

fn netlink_interface(_: &Lead) -> Verdict {
    // A kernel may lack some kinds.
    Verdict::any(["dummy", "veth", "bridge", "vlan", "macvlan", "tun"].map(|kind| {
        let mut body = vec![0; 16];
        body.extend(attribute(3, b"planted\0"));
        body.extend(attribute(18, &attribute(1, format!("{kind}\0").as_bytes())));
        Verdict::of(kind, change(libc::RTM_NEWLINK, &body))
    }))
}

/// Returns one attribute, padded to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("short");
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Requests a change through rtnetlink, which programs need for reading.
fn change(kind: u16, body: &[u8]) -> io::Result<()> {
    /// Flags for a request that creates an object and wants an acknowledgement.
    const FLAGS: u16 = 0x1 | 0x4 | 0x200 | 0x400;
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    // nlmsghdr: length, kind, flags, sequence, port.
    let length = u32::try_from(16 + body.len()).expect("short");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend([kind.to_ne_bytes(), FLAGS.to_ne_bytes()].concat());
    message.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend(body);
    rustix::net::send(&socket, &message, rustix::net::SendFlags::empty())?;
    let mut answer = [0; 512];
    rustix::net::recv(&socket, &mut answer, rustix::net::RecvFlags::empty())?;
    // nlmsgerr: the code comes right after the header.
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(-code)),
    }
}
