//! One connection from inside: what it asks for, and what becomes of it.

use std::{io, time::Duration};

use policy::Endpoint;
use protocol::SessionId;
use tokio::{
    io::{AsyncRead, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    time::timeout,
};

use crate::{
    attempt::Attempt,
    gate::{Gate, Question},
    http::{self, ForwardError, Framing, Request, Target},
    identity::TurnSource,
    pump::Cut,
    recorder::Recorder,
    refusal::Refusal,
    socks::{self, Reply, SocksError},
    source::{HeadError, Source},
    tunnel::{self, TunnelError},
};

/// How long, and how much, is still read from a client that was refused.
const FAREWELL: Duration = Duration::from_secs(2);
const FAREWELL_BYTES: usize = 1 << 20;

const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// A fatal TLS alert: access denied.
const TLS_DENIED: &[u8] = &[21, 3, 3, 0, 2, 2, 49];

/// What serves the connections of one session.
pub(crate) struct Desk {
    pub(crate) session: SessionId,
    pub(crate) turn: TurnSource,
    pub(crate) gate: Gate,
    pub(crate) recorder: Recorder,
}

/// A client, its two directions apart.
pub(crate) struct Client<'a> {
    pub(crate) source: Source<ReadHalf<'a>>,
    pub(crate) sink: WriteHalf<'a>,
}

/// Serves one connection to its end.
pub(crate) async fn serve(mut stream: TcpStream, desk: &Desk) -> io::Result<()> {
    let (reader, sink) = stream.split();
    let mut client = Client { source: Source::new(reader), sink };
    let first = timeout(desk.gate.limits.head_timeout, client.source.has(1)).await;
    match first {
        Ok(Ok(true)) if client.source.ahead()[0] == socks::VERSION => desk.serve_socks(client).await,
        Ok(Ok(true)) => desk.serve_http(client).await,
        // Nothing was asked, so nothing is answered.
        Ok(Ok(false)) | Err(_) => Ok(()),
        Ok(Err(error)) => Err(error),
    }
}

impl Desk {
    async fn serve_http(&self, mut client: Client<'_>) -> io::Result<()> {
        let limits = &self.gate.limits;
        let refusal = match timeout(limits.head_timeout, client.source.head(limits.head_bytes)).await {
            Ok(Ok(head)) => match Request::parse(&head, limits.header_lines) {
                Ok(request) => return self.serve_request(client, request).await,
                Err(refusal) => refusal,
            },
            Ok(Err(HeadError::Closed)) => return Ok(()),
            Ok(Err(HeadError::Io(error))) => return Err(error),
            Ok(Err(HeadError::TooLarge(_))) => Refusal::TooLarge,
            Err(_) => Refusal::TooSlow,
        };
        client.say(&refusal.respond(None, false)).await
    }

    async fn serve_request(&self, mut client: Client<'_>, request: Request) -> io::Result<()> {
        let question = request.question();
        let to = (question.host.as_str(), question.port);
        let mut attempt = Attempt::new(self.recorder.clone(), (self.turn)(), to, &request.method);
        if let Target::Resource { path, .. } = &request.target {
            attempt = attempt.with_path(path);
        }
        let opened = match request.framing() {
            Ok(framing) => self.open(&mut attempt, &question).await.map(|opened| (framing, opened)),
            Err(refusal) => Err(refusal),
        };
        match (opened, &request.target) {
            (Ok((_, opened)), Target::Tunnel { .. }) => {
                client.sink.write_all(CONNECTED).await?;
                self.serve_tunnel(client, opened, &question, attempt).await
            }
            (Ok((framing, opened)), Target::Resource { .. }) => {
                self.serve_resource(client, opened, (&request, framing), (&question, attempt)).await
            }
            (Err(refusal), _) => {
                attempt.refuse(&refusal).await;
                client.say(&refusal.respond(Some(attempt.to()), request.wants_json())).await
            }
        }
    }

    async fn serve_socks(&self, mut client: Client<'_>) -> io::Result<()> {
        let wanted = socks::wanted(&mut client.source, &mut client.sink);
        let wanted = match timeout(self.gate.limits.head_timeout, wanted).await {
            Ok(Ok(wanted)) => wanted,
            Ok(Err(SocksError::Unsupported(reply))) => return client.say(&reply.bytes()).await,
            Ok(Err(SocksError::Io(error))) => return Err(error),
            Ok(Err(SocksError::Malformed)) | Err(_) => return Ok(()),
        };
        let question = Question::tunnel(&wanted.host, wanted.port);
        let to = (wanted.host.as_str(), wanted.port);
        let mut attempt = Attempt::new(self.recorder.clone(), (self.turn)(), to, "SOCKS5");
        match self.open(&mut attempt, &question).await {
            Ok(opened) => {
                client.sink.write_all(&Reply::Succeeded.bytes()).await?;
                self.serve_tunnel(client, opened, &question, attempt).await
            }
            Err(refusal) => {
                attempt.refuse(&refusal).await;
                client.say(&Reply::of(&refusal).bytes()).await
            }
        }
    }

    /// Decides, looks up, judges and calls, in that order.
    async fn open(&self, attempt: &mut Attempt, question: &Question) -> Result<(TcpStream, Endpoint), Refusal> {
        let (endpoint, rule) = self.gate.decide(question)?;
        attempt.allow(&endpoint, &rule);
        let addresses = self.gate.addresses(&endpoint).await?;
        let (stream, address) = self.gate.connect(&addresses).await?;
        attempt.dial(address);
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        Ok((stream, endpoint))
    }

    async fn serve_tunnel(
        &self,
        mut client: Client<'_>,
        (upstream, endpoint): (TcpStream, Endpoint),
        question: &Question,
        mut attempt: Attempt,
    ) -> io::Result<()> {
        let traffic = attempt.traffic();
        let carried = tunnel::carry(&mut client, upstream, &endpoint, &self.gate, &traffic);
        let refusal = match self.gate.guard(question, &traffic, carried).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(TunnelError::Refused(refusal))) => refusal,
            Ok(Err(TunnelError::Broken(error))) => {
                attempt.fail(error.to_string());
                return Ok(());
            }
            Err(cut) => {
                attempt.fail(describe(cut));
                return Ok(());
            }
        };
        attempt.refuse(&refusal).await;
        // The client waits for a TLS server, or for whoever it took this for: answer in its language.
        match client.source.ahead().first() {
            Some(22) => client.say(TLS_DENIED).await,
            Some(byte) if byte.is_ascii_uppercase() => client.say(&refusal.respond(Some(attempt.to()), false)).await,
            _ => Ok(()),
        }
    }

    async fn serve_resource(
        &self,
        mut client: Client<'_>,
        (mut upstream, endpoint): (TcpStream, Endpoint),
        request: (&Request, Framing),
        (question, mut attempt): (&Question, Attempt),
    ) -> io::Result<()> {
        let traffic = attempt.traffic();
        let forwarded = http::forward(&mut client, &mut upstream, request, &endpoint, (&self.gate.limits, &traffic));
        let refusal = match self.gate.guard(question, &traffic, forwarded).await {
            Ok(Ok(())) => return client.farewell().await,
            Ok(Err(ForwardError::Request(what))) => Refusal::Malformed(what),
            Ok(Err(ForwardError::Answer(why))) => Refusal::Unreachable(why),
            Ok(Err(ForwardError::Broken(why))) => {
                attempt.fail(why);
                return Ok(());
            }
            Err(cut) => {
                attempt.fail(describe(cut));
                return Ok(());
            }
        };
        attempt.refuse(&refusal).await;
        client.say(&refusal.respond(Some(attempt.to()), request.0.wants_json())).await
    }
}

fn describe(cut: Cut) -> String {
    match cut {
        Cut::Policy(Refusal::Denied { rule, .. }) => format!("cut: the policy now says {rule}"),
        Cut::Policy(_) => "cut: the policy no longer allows it".to_owned(),
        Cut::Idle => "cut: nothing went through for too long".to_owned(),
    }
}

impl Client<'_> {
    /// Says one last thing, and closes so that the client can read it.
    async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes).await?;
        self.sink.shutdown().await?;
        self.farewell().await
    }

    /// Waits a little for the client to close: closing on unread bytes resets the connection, and with it
    /// whatever the client has not read yet.
    async fn farewell(&mut self) -> io::Result<()> {
        let _ = timeout(FAREWELL, drain(&mut self.source)).await;
        Ok(())
    }
}

async fn drain(source: &mut Source<impl AsyncRead + Unpin>) -> io::Result<()> {
    let mut left = FAREWELL_BYTES;
    let mut scratch = vec![0; 8 << 10];
    while left > 0 {
        match source.read(&mut scratch).await? {
            0 => break,
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
}
