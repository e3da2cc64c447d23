//! One connection from inside: what it asks for, and what becomes of it.

use std::{io, sync::Arc};

use policy::{Endpoint, RuleRef};
use protocol::SessionId;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_util::either::Either;

use crate::{
    attempt::Attempt,
    session_ca::SessionCa,
    client_stream::Client,
    connector::{Gate, Question},
    sniffed_request::Glimpse,
    http::{self, ForwardError, Request, Scheme, Target},
    identity::TurnSource,
    proxy_credentials::ProxyCredentials,
    copy::Cut,
    attempt_recorder::Recorder,
    refusal::Refusal,
    socks::{self, Rejected, Reply, SocksError},
    peek_reader::HeadError,
    tunnel::{self, TunnelError},
};

const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// A fatal TLS alert: access denied.
const TLS_DENIED: &[u8] = &[21, 3, 3, 0, 2, 2, 49];
/// The first byte of TLS.
const TLS_HANDSHAKE: u8 = 22;

/// What serves the connections of one session.
pub(crate) struct Desk {
    pub(crate) session: SessionId,
    pub(crate) turn: TurnSource,
    pub(crate) gate: Gate,
    pub(crate) recorder: Recorder,
    pub(crate) outfit: ProxyCredentials,
}

/// A tunnel that may stand.
pub(crate) enum Tunnel {
    /// Its bytes are carried to this host.
    Carried(TcpStream, Endpoint),
    /// TLS is opened in it, and the requests are judged one by one.
    Opened(Arc<SessionCa>, Endpoint, RuleRef),
}

/// How far an answer came.
enum Answered {
    Whole,
    /// Nothing more can be said to anyone.
    Cut,
}

/// Serves one connection to its end.
pub(crate) async fn serve(mut stream: TcpStream, desk: &Desk) -> io::Result<()> {
    let mut client = Client::new(stream.split());
    let first = timeout(desk.gate.limits.head_timeout, client.source.has(1)).await;
    match first {
        Ok(Ok(true)) => match client.source.ahead()[0] {
            socks::VERSION => desk.serve_socks(client).await,
            socks::VERSION_4 => desk.refuse_socks4(client).await,
            TLS_HANDSHAKE => desk.refuse_tls(client).await,
            _ => desk.serve_http(client).await,
        },
        // Nothing was asked, so nothing is answered.
        Ok(Ok(false)) | Err(_) => Ok(()),
        Ok(Err(error)) => Err(error),
    }
}

impl Desk {
    async fn serve_http<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: Client<R, W>,
    ) -> io::Result<()> {
        match self.read_request(&mut client, None).await? {
            Some(request) if matches!(request.target, Target::Tunnel { .. }) => {
                self.serve_connect(client, &request).await
            }
            Some(request) => self.serve_resource(client, &request).await,
            None => Ok(()),
        }
    }

    /// Reads a head, in a tunnel to `inside` that was opened, if there is one. None: there is no head, or it was refused,
    /// which is on record, and its client told.
    pub(crate) async fn read_request<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        client: &mut Client<R, W>,
        inside: Option<&Endpoint>,
    ) -> io::Result<Option<Request>> {
        let limits = &self.gate.limits;
        let parse = |head: &[u8]| match inside {
            Some(endpoint) => Request::parse_inside(head, limits.header_lines, endpoint),
            None => Request::parse(head, limits.header_lines),
        };
        let (glimpse, refusal) = match timeout(limits.head_timeout, client.source.head(limits.head_bytes)).await {
            Ok(Ok(head)) => match parse(&head) {
                Ok(request) => return Ok(Some(request)),
                Err(refusal) => (Glimpse::of_head(&head), refusal),
            },
            Ok(Err(HeadError::Closed)) => return Ok(None),
            Ok(Err(HeadError::Io(error))) => return Err(error),
            Ok(Err(HeadError::TooLarge(_))) => (Glimpse::of_head(client.source.ahead()), Refusal::TooLarge),
            Err(_) => (Glimpse::of_head(client.source.ahead()), Refusal::TooSlow),
        };
        let glimpse = inside.map_or(glimpse.clone(), |endpoint| glimpse.inside(endpoint));
        self.glimpsed(&glimpse).refuse(&refusal).await;
        client.say(&refusal.respond(None, false)).await.map(|()| None)
    }

    /// TLS to the proxy itself: the client took it for another kind.
    async fn refuse_tls<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: Client<R, W>,
    ) -> io::Result<()> {
        let what = "this proxy is spoken to without TLS: its address begins with http://, not https://";
        let refusal = Refusal::Malformed(what.to_owned());
        self.glimpsed(&Glimpse::of_protocol("TLS")).refuse(&refusal).await;
        client.say(&refusal.respond(None, false)).await
    }

    /// SOCKS4 would have the client look names up by itself.
    async fn refuse_socks4<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: Client<R, W>,
    ) -> io::Result<()> {
        let refusal = Refusal::Malformed("SOCKS4 is not spoken here: use SOCKS5 with names (socks5h://)".to_owned());
        self.glimpsed(&Glimpse::of_socks4(client.source.ahead())).refuse(&refusal).await;
        client.say(&socks::REJECTED_4).await
    }

    async fn serve_connect<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: Client<R, W>,
        request: &Request,
    ) -> io::Result<()> {
        let (question, mut attempt) = self.asked(request);
        let question = self.gate.as_wide_as_allowed(&question);
        let tunnel = match request.framing() {
            Ok(_) => self.open_tunnel(&mut attempt, &question).await,
            Err(refusal) => Err(refusal),
        };
        match tunnel {
            Ok(tunnel) => {
                client.sink.write_all(CONNECTED).await?;
                self.serve_tunnel(client, tunnel, &question, attempt).await
            }
            Err(refusal) => {
                attempt.refuse(&refusal).await;
                client.say(&refusal.respond(Some(attempt.to()), request.wants_json())).await
            }
        }
    }

    async fn serve_socks<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: Client<R, W>,
    ) -> io::Result<()> {
        let wanted = socks::wanted(&mut client.source, &mut client.sink);
        let wanted = match timeout(self.gate.limits.head_timeout, wanted).await {
            Ok(Ok(wanted)) => wanted,
            Ok(Err(SocksError::Rejected(Rejected { answer, what, wanted }))) => {
                let mut glimpse = Glimpse::of_protocol("SOCKS5");
                if let Some(wanted) = wanted {
                    (glimpse.host, glimpse.port) = (wanted.host, wanted.port);
                }
                self.glimpsed(&glimpse).refuse(&Refusal::Malformed(what.to_owned())).await;
                return client.say(&answer).await;
            }
            Ok(Err(SocksError::Io(error))) => return Err(error),
            Ok(Err(SocksError::Closed)) => return Ok(()),
            Err(_) => {
                self.glimpsed(&Glimpse::of_protocol("SOCKS5")).refuse(&Refusal::TooSlow).await;
                return Ok(());
            }
        };
        let question = self.gate.as_wide_as_allowed(&Question::tunnel(&wanted.host, wanted.port));
        let mut attempt = self.attempt(&question, "SOCKS5");
        match self.open_tunnel(&mut attempt, &question).await {
            Ok(tunnel) => {
                client.sink.write_all(&Reply::Succeeded.bytes()).await?;
                self.serve_tunnel(client, tunnel, &question, attempt).await
            }
            Err(refusal) => {
                attempt.refuse(&refusal).await;
                client.say(&Reply::of(&refusal).bytes()).await
            }
        }
    }

    /// What a request asks of the policy, and the attempt that it is.
    fn asked(&self, request: &Request) -> (Question, Attempt) {
        let question = request.question();
        let attempt = self.attempt(&question, &request.method);
        match &request.target {
            Target::Resource { path, .. } => (question, attempt.with_path(path)),
            Target::Tunnel { .. } => (question, attempt),
        }
    }

    /// The attempt that something seems to be which is no request.
    fn glimpsed(&self, glimpse: &Glimpse) -> Attempt {
        let to = (glimpse.host.as_str(), glimpse.port);
        let attempt = Attempt::new(self.recorder.clone(), (self.turn)(), to, &glimpse.method);
        match &glimpse.path {
            Some(path) => attempt.with_path(path),
            None => attempt,
        }
    }

    fn attempt(&self, question: &Question, method: &str) -> Attempt {
        let to = (question.host.as_str(), question.port);
        Attempt::new(self.recorder.clone(), (self.turn)(), to, method)
    }

    /// A tunnel, if one may stand. One that is opened calls nobody yet: what is asked for in it is not known.
    async fn open_tunnel(&self, attempt: &mut Attempt, question: &Question) -> Result<Tunnel, Refusal> {
        if !self.gate.intercepts(question) {
            return self.open(attempt, question).await.map(|(stream, endpoint)| Tunnel::Carried(stream, endpoint));
        }
        let (endpoint, rule) = self.gate.decide_opening(question)?;
        let authority = self.outfit.authority.clone().ok_or_else(|| {
            let rule = format!("TLS to `{endpoint}` is opened (net.intercept), and this session began without that");
            Refusal::built_in(rule, "begin a new session with this policy")
        })?;
        Ok(Tunnel::Opened(authority, endpoint, rule))
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

    async fn serve_tunnel<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: Client<R, W>,
        tunnel: Tunnel,
        question: &Question,
        mut attempt: Attempt,
    ) -> io::Result<()> {
        let (upstream, endpoint) = match tunnel {
            Tunnel::Carried(upstream, endpoint) => (upstream, endpoint),
            Tunnel::Opened(authority, endpoint, rule) => {
                return self.serve_opened(client, (&authority, &endpoint, &rule), attempt).await;
            }
        };
        let traffic = attempt.traffic();
        let carried = async {
            if question.raw {
                return tunnel::carry_raw(&mut client, upstream, &traffic).await;
            }
            tunnel::carry(&mut client, upstream, &endpoint, &self.gate, &traffic).await
        };
        match self.gate.guard(question, &traffic, carried).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(TunnelError::Refused(refusal))) => return refuse_tunnel(client, attempt, &refusal).await,
            Ok(Err(TunnelError::Broken(error))) => attempt.fail(error.to_string()),
            Err(cut) => attempt.fail(describe(cut)),
        }
        Ok(())
    }

    /// A request that is seen: in the clear, or in TLS that was opened.
    pub(crate) async fn serve_resource<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: Client<R, W>,
        request: &Request,
    ) -> io::Result<()> {
        let (question, mut attempt) = self.asked(request);
        let refusal = match self.exchange(&mut client, request, &question, &mut attempt).await {
            Ok(Answered::Whole) => return client.farewell().await,
            Ok(Answered::Cut) => return Ok(()),
            Err(refusal) => refusal,
        };
        attempt.refuse(&refusal).await;
        client.say(&refusal.respond(Some(attempt.to()), request.wants_json())).await
    }

    /// Passes a request and its answer on, as far as that can be done; an error is still to be told to the client.
    async fn exchange<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        client: &mut Client<R, W>,
        request: &Request,
        question: &Question,
        attempt: &mut Attempt,
    ) -> Result<Answered, Refusal> {
        let framing = request.framing()?;
        let (upstream, endpoint) = self.open(attempt, question).await?;
        let dressed = self.dress(request, &endpoint)?;
        let upstream = match question.request.as_ref().map(|asked| asked.scheme) {
            Some(Scheme::Https) => Either::Right(self.speak_tls(upstream, &endpoint.host).await?),
            Some(Scheme::Http) | None => Either::Left(upstream),
        };
        let traffic = attempt.traffic();
        let forwarded = http::forward(client, upstream, (dressed, framing), &endpoint, (&self.gate.limits, &traffic));
        match self.gate.guard(question, &traffic, forwarded).await {
            Ok(Ok(())) => return Ok(Answered::Whole),
            Ok(Err(ForwardError::Request(what))) => return Err(Refusal::Malformed(what)),
            Ok(Err(ForwardError::Answer(why))) => return Err(Refusal::Unreachable(why)),
            Ok(Err(ForwardError::Broken(why))) => attempt.fail(why),
            Err(cut) => attempt.fail(describe(cut)),
        }
        Ok(Answered::Cut)
    }
}

/// Tells a client whose tunnel stands already: it waits for a TLS server, or for whoever it took this for.
pub(crate) async fn refuse_tunnel<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut client: Client<R, W>,
    mut attempt: Attempt,
    refusal: &Refusal,
) -> io::Result<()> {
    attempt.refuse(refusal).await;
    match client.source.ahead().first() {
        Some(&TLS_HANDSHAKE) => client.say(TLS_DENIED).await,
        Some(byte) if byte.is_ascii_uppercase() => client.say(&refusal.respond(Some(attempt.to()), false)).await,
        _ => Ok(()),
    }
}

fn describe(cut: Cut) -> String {
    match cut {
        Cut::Policy(Refusal::Denied { rule, .. }) => format!("cut: the policy now says {rule}"),
        Cut::Policy(_) => "cut: the policy no longer allows it".to_owned(),
        Cut::Idle => "cut: nothing went through for too long".to_owned(),
    }
}
