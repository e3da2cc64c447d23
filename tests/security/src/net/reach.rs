//! Reaching listeners: of the host, and of other sandboxes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use sandbox::SandboxPort;

use crate::attack::{Attack, Control, Group::Net, Place, Verdict, Walls, program, scenario};
use crate::lead::Lead;
use crate::stage::{Stage, command, to_json};

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Net, "net_loopback", "connect to a listener on the host's loopback", loopback),
        program(Net, "net_loopback_6", "the same over IPv6", loopback_6),
        program(Net, "net_loopback_mapped", "the same by an IPv4 address in an IPv6 one", loopback_mapped),
        program(Net, "net_loopback_any", "the same by the unspecified address", loopback_any),
        program(Net, "net_datagram", "send a datagram to the host", datagram),
        program(Net, "net_address", "connect to an address of the host's network", address),
        program(Net, "net_outside", "connect to the internet", outside).shown(Control::ProbeOnly(
            address,
            "nothing beyond the machine is touched; its own address is as far outside of the sandbox",
        )),
        program(Net, "net_unix_abstract", "connect to an abstract unix socket of the host", abstract_socket),
        program(Net, "net_unix_path", "connect to a unix socket of the host by path", unix_path),
        program(Net, "net_unix_workspace", "connect to one that lies in the workspace", unix_workspace),
        scenario(
            Net,
            "net_other_sandbox",
            "connect to a listener in another sandbox",
            "a plain process connects to it on the host",
            other_sandbox,
        ),
        scenario(
            Net,
            "net_other_gateway",
            "be taken for another sandbox by its gateway or proxy",
            "that sandbox itself is accepted there",
            other_gateway,
        ),
        program(Net, "net_gateway_port", "take the gateway's port, to be given tokens", gateway_port),
    ]
}

const PATIENCE: Duration = Duration::from_secs(2);

fn connect(address: impl ToSocketAddrs) -> Verdict {
    let address = address.to_socket_addrs().ok().and_then(|mut found| found.next());
    let Some(address) = address else { return Verdict::Blocked("no such address".into()) };
    Verdict::of(&address.to_string(), TcpStream::connect_timeout(&address, PATIENCE))
}

fn loopback(lead: &Lead) -> Verdict {
    connect(("127.0.0.1", lead.ports[0]))
}

fn loopback_6(lead: &Lead) -> Verdict {
    connect(("::1", lead.ports[1]))
}

fn loopback_mapped(lead: &Lead) -> Verdict {
    connect(("::ffff:127.0.0.1", lead.ports[0]))
}

fn loopback_any(lead: &Lead) -> Verdict {
    connect(("0.0.0.0", lead.ports[0]))
}

fn datagram(lead: &Lead) -> Verdict {
    let sent = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"x", ("127.0.0.1", lead.ports[2])));
    Verdict::Blocked(format!("the host will see ({sent:?})"))
}

fn address(lead: &Lead) -> Verdict {
    connect(lead.address.as_str())
}

fn outside(_: &Lead) -> Verdict {
    // Documentation addresses: nothing answers there, but without a network the kernel fails at once.
    Verdict::any(["192.0.2.1:443", "[2001:db8::1]:443", "198.51.100.7:53"].map(connect))
}

fn abstract_socket(lead: &Lead) -> Verdict {
    let address = UnixAddress::from_abstract_name(&lead.abstract_name).expect("name");
    Verdict::of("connect", UnixStream::connect_addr(&address))
}

fn unix_path(lead: &Lead) -> Verdict {
    Verdict::of("connect", UnixStream::connect(lead.outside.join("host.sock")))
}

fn unix_workspace(lead: &Lead) -> Verdict {
    // The path may be too long for an address; the working directory is the workspace.
    std::env::set_current_dir(&lead.workspace).expect("workspace");
    Verdict::of("connect", UnixStream::connect("host.sock"))
}

fn gateway_port(lead: &Lead) -> Verdict {
    // Usually these ports are free on the host; otherwise another pair is used.
    let ports = if lead.inside { [18_080, 18_081] } else { [0, 0] };
    let addresses: [fn(u16) -> SocketAddr; 3] =
        [|port| ([127, 0, 0, 1], port).into(), |port| ([0, 0, 0, 0], port).into(), |port| ([0_u16; 8], port).into()];
    Verdict::any(
        addresses.iter().flat_map(|address| ports.map(|port| Verdict::of("bind", TcpListener::bind(address(port))))),
    )
}

/// One sandbox listens and prints its address; the attacker runs in another one.
fn other_sandbox(stage: &Stage, place: Place) -> Verdict {
    let (scene, other) = (stage.scene(), stage.scene());
    if place == Place::Outside {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
        let port = listener.local_addr().expect("address").port();
        return connect(("127.0.0.1", port));
    }
    let first = stage.sandbox(Walls::Usual, &other.workspace()).expect("sandbox");
    let second = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    // Every sandbox listens on the gateway's port. Only the own listener may be reachable; it has no server here.
    let listener = first.take_listener(SandboxPort::Models).expect("listener");
    listener.set_nonblocking(true).expect("listener");
    drop(second.take_listener(SandboxPort::Models));
    let mut lead = scene.lead(Place::Inside);
    lead.ports[0] = 18_080;
    let result = stage.exec(&*second, &["__attack", "net_loopback", &to_json(&lead)]).expect("run");
    let accepted = listener.accept().is_ok();
    stage.destroy(&*first);
    stage.destroy(&*second);
    Verdict::when(accepted, String::from_utf8_lossy(&result.stdout).into_owned())
}

/// Watches the listeners of both sandboxes. The attacker's connection must arrive at its own listener.
fn other_gateway(stage: &Stage, place: Place) -> Verdict {
    let (scene, other) = (stage.scene(), stage.scene());
    let attacker = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    let neighbour = stage.sandbox(Walls::Usual, &other.workspace()).expect("sandbox");
    let [own, others] = [&attacker, &neighbour].map(|sandbox| {
        [SandboxPort::Models, SandboxPort::Egress].map(|port| sandbox.take_listener(port).expect("listener"))
    });
    let knock = "exec 3<>/dev/tcp/127.0.0.1/18080; echo x >&3; exec 4<>/dev/tcp/127.0.0.1/18081; echo x >&4";
    let mut spec = command(&[]);
    spec.command = ["bash", "-c", knock].map(str::to_owned).to_vec();
    stage.runtime.block_on(sandbox::run(&*attacker, spec, &mut |_, _| {})).expect("run");
    // A relayed connection may arrive after the command has ended. When it has arrived at the own listener, it would also
    // have arrived at the neighbour's.
    let heard = own.iter().all(|door| is_visited(door, CARRIED));
    let opened = match place {
        Place::Outside => heard,
        Place::Inside => others.iter().any(|door| is_visited(door, Duration::ZERO)),
    };
    assert!(heard || opened, "the knock came nowhere");
    stage.destroy(&*attacker);
    stage.destroy(&*neighbour);
    Verdict::when(opened, "knocked at both doors")
}

/// Timeout for a connection to arrive on a busy machine.
const CARRIED: Duration = Duration::from_secs(20);

/// Returns whether a connection arrives and sends data within the timeout.
fn is_visited(door: &TcpListener, patience: Duration) -> bool {
    let patience = patience.try_into().expect("a time");
    let mut waiting = [PollFd::new(door, PollFlags::IN)];
    rustix::event::poll(&mut waiting, Some(&patience)).is_ok_and(|ready| ready == 1)
        && door.accept().is_ok_and(|(mut visitor, _)| visitor.write_all(b"y").is_ok() && visitor.read(&mut [0]).is_ok())
}
