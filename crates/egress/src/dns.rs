//! The DNS server inside a sandbox, which forwards no query.
//!
//! It serves programs that look up a name before they use the proxy. Every listed name has the same placeholder
//! address; any other name does not exist. It makes no lookups, so no data can leave the host in a DNS query.

mod message;

use std::{io, sync::Arc};

use policy::DnsMode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{attempt::Attempt, refusal::Refusal, session_proxy::SessionProxy};
use message::{DnsAnswer, DnsQuestion};

/// The port of DNS.
const DNS_PORT: u16 = 53;
/// Most TCP connections at a time; further ones wait.
const STREAMS_MAX: usize = 16;
/// Longest message in bytes; longer ones are ignored.
const MESSAGE_BYTES: usize = 512;

/// The sockets of the DNS server inside a sandbox.
#[derive(Debug)]
pub struct DnsSockets {
    /// The UDP socket.
    pub datagrams: std::net::UdpSocket,
    /// The TCP listener.
    pub streams: std::net::TcpListener,
}

/// The DNS server of one session.
pub(crate) struct DnsServer {
    datagrams: UdpSocket,
    streams: TcpListener,
}

impl DnsServer {
    pub(crate) fn new(sockets: DnsSockets) -> io::Result<Self> {
        sockets.datagrams.set_nonblocking(true)?;
        sockets.streams.set_nonblocking(true)?;
        let (datagrams, streams) = (UdpSocket::from_std(sockets.datagrams)?, TcpListener::from_std(sockets.streams)?);
        Ok(Self { datagrams, streams })
    }

    /// Answers queries until `closing` is cancelled.
    pub(crate) async fn serve(self, proxy: Arc<SessionProxy>, closing: CancellationToken) {
        let mut streams = JoinSet::new();
        let mut bytes = [0; MESSAGE_BYTES];
        loop {
            tokio::select! {
                () = closing.cancelled() => break,
                Some(_) = streams.join_next() => {}
                received = self.datagrams.recv_from(&mut bytes) => {
                    let Ok((length, asker)) = received else { continue };
                    if let Some(answer) = proxy.answer_dns(&bytes[..length]).await {
                        // The client may have closed its socket.
                        let _ = self.datagrams.send_to(&answer, asker).await;
                    }
                }
                accepted = self.streams.accept(), if streams.len() < STREAMS_MAX => {
                    if let Ok((stream, _)) = accepted {
                        let proxy = proxy.clone();
                        streams.spawn(async move {
                            let _ = timeout(proxy.connector.limits.head_timeout, serve_stream(stream, &proxy)).await;
                        });
                    }
                }
            }
        }
        streams.shutdown().await;
    }
}

/// Answers the queries of one TCP connection, each preceded by its length.
async fn serve_stream(mut stream: TcpStream, proxy: &SessionProxy) -> io::Result<()> {
    loop {
        let length = usize::from(stream.read_u16().await?);
        if length > MESSAGE_BYTES {
            return Ok(());
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await?;
        let Some(answer) = proxy.answer_dns(&bytes).await else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await?;
    }
}

impl SessionProxy {
    /// Returns the response to a message; `None` if the message is not a query.
    async fn answer_dns(&self, message: &[u8]) -> Option<Vec<u8>> {
        let question = match DnsQuestion::read(message)? {
            Ok(question) => question,
            Err(answer) => return Some(answer.bytes(message, None)),
        };
        let policy = self.connector.policy.current();
        if policy.dns_mode() == DnsMode::None {
            return Some(DnsAnswer::Refused.bytes(message, Some(&question)));
        }
        let decision = policy.decide_name(&question.name);
        if decision.is_allowed() {
            return Some(question.answer_for_listed_name().bytes(message, Some(&question)));
        }
        let to = (question.name.as_str(), DNS_PORT);
        let mut attempt = Attempt::new(self.recorder.clone(), (self.turn)(), to, "DNS");
        attempt.refuse(&Refusal::from_decision(decision)).await;
        Some(DnsAnswer::NoSuchName.bytes(message, Some(&question)))
    }
}
