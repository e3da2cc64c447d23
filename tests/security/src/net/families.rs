//! Socket families: a network namespace does not confine some of them, and most are large and rarely needed.

use crate::attack::{Attack, Control, Group::Net, Verdict, program};
use crate::lead::Lead;
use crate::raw::{self, Arg};

/// Kinds of socket: stream, datagram, raw, sequenced packets.
const KINDS: [i32; 4] = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET];
/// Families that a sandbox may use.
const GIVEN: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// One more than the highest known family.
const FAMILIES: i32 = 46;

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Net, "net_family_any", "open a socket of every family from 0 to 45, of every kind", every_family),
        program(Net, "net_family_vsock", "talk to the hypervisor: AF_VSOCK", |_| one(libc::AF_VSOCK))
            .shown(Control::Probe(unix_probe, "a kernel may have no vsock; the same call opens another family")),
        program(Net, "net_family_alg", "the kernel's ciphers: AF_ALG", |_| one(libc::AF_ALG))
            .shown(Control::Probe(unix_probe, "a kernel may have no AF_ALG; the same call opens another family")),
        program(Net, "net_family_packet", "see and forge frames: AF_PACKET", |_| one(libc::AF_PACKET))
            .shown(Control::Namespaced),
        program(Net, "net_family_high_bits", "a family hidden behind high bits of the argument", high_bits)
            .shown(Control::Probe(unix_probe, "the kernel looks at 32 bits too; the same call opens a plain family")),
        program(Net, "net_family_pair", "a pair of sockets of another family", pairs)
            .shown(Control::Probe(pair_probe, "no other family makes pairs in most kernels; unix sockets do")),
        program(Net, "net_raw_ip", "forge IP packets: raw IPv4", |_| kind(libc::AF_INET, libc::SOCK_RAW, 1))
            .shown(Control::Namespaced),
        program(Net, "net_raw_ip6", "forge IP packets: raw IPv6", |_| kind(libc::AF_INET6, libc::SOCK_RAW, 58))
            .shown(Control::Namespaced),
        program(
            Net,
            "net_protocol",
            "speak another protocol than TCP and UDP: MPTCP, UDP-Lite, SCTP, DCCP, echoes",
            protocols,
        ),
        program(Net, "net_netlink", "speak netlink of every protocol but routes", netlink),
        program(Net, "net_netlink_generic", "speak generic netlink", |_| {
            kind(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)
        }),
        program(Net, "net_netlink_diag", "list sockets by netlink", |_| {
            kind(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG)
        }),
    ]
}

fn socket(family: i64, kind: i32, protocol: i32) -> std::io::Result<()> {
    let mut arguments = [Arg::Number(family), Arg::Number(kind.into()), Arg::Number(protocol.into())];
    raw::call(libc::SYS_socket, &mut arguments).map(|fd| drop(raw::own(fd)))
}

fn kind(family: i32, kind: i32, protocol: i32) -> Verdict {
    Verdict::of("socket", socket(family.into(), kind, protocol))
}

/// Tries families by number, and socket types that imply a family.
fn protocols(_: &Lead) -> Verdict {
    const DCCP: i32 = 6;
    let asked = [
        (libc::SOCK_STREAM, 262),
        (libc::SOCK_DGRAM, 136),
        (libc::SOCK_STREAM, 132),
        (libc::SOCK_SEQPACKET, 0),
        (DCCP, 0),
        (DCCP | libc::SOCK_CLOEXEC, 33),
        (libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
        (libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6),
    ];
    let families = [libc::AF_INET, libc::AF_INET6];
    Verdict::any(families.into_iter().flat_map(|family| asked.map(|(of, protocol)| kind(family, of, protocol))))
}

fn one(family: i32) -> Verdict {
    Verdict::any(KINDS.map(|of| kind(family, of, 0)))
}

fn unix_probe(_: &Lead) -> Verdict {
    one(libc::AF_UNIX)
}

fn every_family(_: &Lead) -> Verdict {
    let foreign = (0..FAMILIES).filter(|family| !GIVEN.contains(family));
    let opened: Vec<_> =
        foreign.filter(|family| KINDS.iter().any(|of| socket((*family).into(), *of, 0).is_ok())).collect();
    Verdict::when(!opened.is_empty(), format!("families {opened:?} opened"))
}

fn high_bits(_: &Lead) -> Verdict {
    let hidden = [libc::AF_VSOCK, libc::AF_ALG, libc::AF_PACKET].map(|family| i64::from(family) | (1 << 32));
    Verdict::any(hidden.into_iter().flat_map(|family| KINDS.map(|of| Verdict::of("socket", socket(family, of, 0)))))
}

fn pair(family: i32) -> Verdict {
    let mut ends = [0; 8];
    Verdict::any([libc::SOCK_STREAM, libc::SOCK_DGRAM].map(|of| {
        let mut arguments =
            [Arg::Number(family.into()), Arg::Number(of.into()), Arg::Number(0), Arg::Buffer(&mut ends)];
        Verdict::of("socketpair", raw::call(libc::SYS_socketpair, &mut arguments))
    }))
}

/// Inside, the filter refuses a foreign family with its own error, before the kernel looks for the family.
fn pairs(lead: &Lead) -> Verdict {
    let reached = |family: i32| match pair(family) {
        Verdict::Blocked(reason) if lead.inside && !GIVEN.contains(&family) && !reason.contains("(os error 97)") => {
            Verdict::Succeeded(format!("family {family} reached the kernel: {reason}"))
        }
        verdict => verdict,
    };
    Verdict::any((2..FAMILIES).map(reached))
}

fn pair_probe(_: &Lead) -> Verdict {
    pair(libc::AF_UNIX)
}

fn netlink(_: &Lead) -> Verdict {
    Verdict::any((1..23).map(|protocol| kind(libc::AF_NETLINK, libc::SOCK_RAW, protocol)))
}
