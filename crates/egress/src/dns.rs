//! Names inside: a name server that asks nobody.
//!
//! For programs that will not speak to a proxy before they have looked a name up. A name the policy lists has one
//! address, always the same, behind which nobody is; any other name does not exist. Nothing is looked up for it, so
//! that no question, however it is spelled, is heard outside the host.

mod question;

use std::{io, sync::Arc};

use policy::DnsMode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{attempt::Attempt, session_proxy::Desk, refusal::Refusal};
use question::{Answer, Question};

/// Where a name server is asked.
const DNS_PORT: u16 = 53;
/// Questions over streams at a time; further ones wait.
const STREAMS: usize = 16;
/// Bytes of a question; a longer one is none.
const LONGEST: usize = 512;

/// What is listened on for questions, inside a sandbox.
#[derive(Debug)]
pub struct DnsSockets {
    /// For datagrams.
    pub datagrams: std::net::UdpSocket,
    /// For streams.
    pub streams: std::net::TcpListener,
}

/// Both sockets, made ready for a runtime.
pub(crate) struct Names {
    datagrams: UdpSocket,
    streams: TcpListener,
}

impl Names {
    pub(crate) fn new(sockets: DnsSockets) -> io::Result<Self> {
        sockets.datagrams.set_nonblocking(true)?;
        sockets.streams.set_nonblocking(true)?;
        let (datagrams, streams) = (UdpSocket::from_std(sockets.datagrams)?, TcpListener::from_std(sockets.streams)?);
        Ok(Self { datagrams, streams })
    }

    /// Answers until it is closed.
    pub(crate) async fn serve(self, desk: Arc<Desk>, closing: CancellationToken) {
        let mut streams = JoinSet::new();
        let mut bytes = [0; LONGEST];
        loop {
            tokio::select! {
                () = closing.cancelled() => break,
                Some(_) = streams.join_next() => {}
                received = self.datagrams.recv_from(&mut bytes) => {
                    let Ok((length, asker)) = received else { continue };
                    if let Some(answer) = desk.answer(&bytes[..length]).await {
                        // Whoever asked may be gone.
                        let _ = self.datagrams.send_to(&answer, asker).await;
                    }
                }
                accepted = self.streams.accept(), if streams.len() < STREAMS => {
                    if let Ok((stream, _)) = accepted {
                        let desk = desk.clone();
                        streams.spawn(async move {
                            let _ = timeout(desk.gate.limits.head_timeout, serve_stream(stream, &desk)).await;
                        });
                    }
                }
            }
        }
        streams.shutdown().await;
    }
}

/// Answers the questions of one stream, each after its length.
async fn serve_stream(mut stream: TcpStream, desk: &Desk) -> io::Result<()> {
    loop {
        let length = usize::from(stream.read_u16().await?);
        if length > LONGEST {
            return Ok(());
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await?;
        let Some(answer) = desk.answer(&bytes).await else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await?;
    }
}

impl Desk {
    /// The answer to a message; none where it is not even a question.
    async fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        let question = match Question::read(message)? {
            Ok(question) => question,
            Err(answer) => return Some(answer.bytes(message, None)),
        };
        let policy = self.gate.policy.current();
        if policy.name_service() == DnsMode::None {
            return Some(Answer::Refused.bytes(message, Some(&question)));
        }
        let decision = policy.decide_name(&question.name);
        if decision.is_allowed() {
            return Some(question.placeholder().bytes(message, Some(&question)));
        }
        let to = (question.name.as_str(), DNS_PORT);
        let mut attempt = Attempt::new(self.recorder.clone(), (self.turn)(), to, "DNS");
        attempt.refuse(&Refusal::of(decision)).await;
        Some(Answer::NoSuchName.bytes(message, Some(&question)))
    }
}
