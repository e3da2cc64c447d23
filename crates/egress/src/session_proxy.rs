//! The proxy of one session: reads each connection's request, decides, connects and relays.

use std::{io, sync::Arc};

use base::ByteBudget;
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
    attempt_recorder::AttemptRecorder,
    client_stream::ClientStream,
    connector::{AccessQuery, Connector},
    copy::CutReason,
    http::{self, ForwardError, ProxyRequest, RequestTarget, Scheme},
    identity::TurnSource,
    peek_reader::HeadError,
    proxy_credentials::ProxyCredentials,
    refusal::Refusal,
    session_ca::SessionCa,
    sniffed_request::SniffedRequest,
    socks::{self, SocksError, SocksRejection, SocksReply},
    tunnel::{self, TunnelError},
};

const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// A fatal TLS alert: access denied.
const TLS_DENIED: &[u8] = &[21, 3, 3, 0, 2, 2, 49];
/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 22;

/// Everything that is needed to serve the connections of one session.
pub(crate) struct SessionProxy {
    pub(crate) session: SessionId,
    pub(crate) turn: TurnSource,
    pub(crate) connector: Connector,
    pub(crate) recorder: AttemptRecorder,
    pub(crate) credentials: ProxyCredentials,
    /// The bytes in memory that all connections of the session share.
    pub(crate) in_flight: ByteBudget,
}

/// A tunnel that the policy allows.
pub(crate) enum Tunnel {
    /// The bytes of the tunnel are forwarded to the connected host.
    Forwarded(TcpStream, Endpoint),
    /// The TLS of the tunnel is intercepted, and each request is decided separately.
    Intercepted(Arc<SessionCa>, Endpoint, RuleRef),
}

/// The end of an exchange with a host.
enum ExchangeEnd {
    /// The client got the complete response.
    Complete,
    /// The connection broke, so the client cannot get an error response.
    Cut,
}

/// Serves one connection to its end.
pub(crate) async fn serve(mut stream: TcpStream, proxy: &SessionProxy) -> io::Result<()> {
    let mut client = ClientStream::new(stream.split());
    let first = timeout(proxy.connector.limits.head_timeout, client.source.fill_to(1)).await;
    match first {
        Ok(Ok(true)) => match client.source.buffered()[0] {
            socks::VERSION => proxy.serve_socks(client).await,
            socks::VERSION_4 => proxy.refuse_socks4(client).await,
            TLS_HANDSHAKE => proxy.refuse_tls(client).await,
            _ => proxy.serve_http(client).await,
        },
        // The client closed or waited without a request.
        Ok(Ok(false)) | Err(_) => Ok(()),
        Ok(Err(error)) => Err(error),
    }
}

impl SessionProxy {
    async fn serve_http<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: ClientStream<R, W>,
    ) -> io::Result<()> {
        match self.read_request(&mut client, None).await? {
            Some(request) if matches!(request.target, RequestTarget::Tunnel { .. }) => {
                self.serve_connect(client, &request).await
            }
            Some(request) => self.serve_resource(client, &request).await,
            None => Ok(()),
        }
    }

    /// Reads a request head. `intercepted` is the host of the tunnel if the request is inside intercepted TLS.
    ///
    /// Returns `None` if the client closed, or if the request was refused; then the refusal is recorded and sent.
    pub(crate) async fn read_request<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        client: &mut ClientStream<R, W>,
        intercepted: Option<&Endpoint>,
    ) -> io::Result<Option<ProxyRequest>> {
        let limits = &self.connector.limits;
        let parse = |head: &[u8]| match intercepted {
            Some(endpoint) => ProxyRequest::parse_intercepted(head, limits.header_lines, endpoint),
            None => ProxyRequest::parse(head, limits.header_lines),
        };
        let (sniffed, refusal) = match timeout(limits.head_timeout, client.source.read_head(limits.head_bytes)).await {
            Ok(Ok(head)) => match parse(&head) {
                Ok(request) => return Ok(Some(request)),
                Err(refusal) => (SniffedRequest::from_head(&head), refusal),
            },
            Ok(Err(HeadError::Closed)) => return Ok(None),
            Ok(Err(HeadError::Io(error))) => return Err(error),
            Ok(Err(HeadError::TooLarge(_))) => (SniffedRequest::from_head(client.source.buffered()), Refusal::TooLarge),
            Err(_) => (SniffedRequest::from_head(client.source.buffered()), Refusal::TooSlow),
        };
        let sniffed = intercepted.map_or(sniffed.clone(), |endpoint| sniffed.in_tunnel_to(endpoint));
        self.sniffed_attempt(&sniffed).refuse(&refusal).await;
        client.send_and_close(&refusal.response(None, false)).await.map(|()| None)
    }

    /// Refuses TLS to the proxy itself.
    async fn refuse_tls<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: ClientStream<R, W>,
    ) -> io::Result<()> {
        let reason = "the proxy does not accept TLS: use http:// in the proxy's address, not https://";
        let refusal = Refusal::Malformed(reason.to_owned());
        self.sniffed_attempt(&SniffedRequest::from_protocol("TLS")).refuse(&refusal).await;
        client.send_and_close(&refusal.response(None, false)).await
    }

    /// Refuses SOCKS4, with which clients look up names themselves.
    async fn refuse_socks4<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: ClientStream<R, W>,
    ) -> io::Result<()> {
        let refusal = Refusal::Malformed("SOCKS4 is not supported: use SOCKS5 with names (socks5h://)".to_owned());
        self.sniffed_attempt(&SniffedRequest::from_socks4(client.source.buffered())).refuse(&refusal).await;
        client.send_and_close(&socks::SOCKS4_REJECTED).await
    }

    async fn serve_connect<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: ClientStream<R, W>,
        request: &ProxyRequest,
    ) -> io::Result<()> {
        let (query, mut attempt) = self.query_and_attempt(request);
        let query = self.connector.widen_to_raw(&query);
        let tunnel = match request.framing() {
            Ok(_) => self.open_tunnel(&mut attempt, &query).await,
            Err(refusal) => Err(refusal),
        };
        match tunnel {
            Ok(tunnel) => {
                client.sink.write_all(CONNECTED).await?;
                self.serve_tunnel(client, tunnel, &query, attempt).await
            }
            Err(refusal) => {
                attempt.refuse(&refusal).await;
                client.send_and_close(&refusal.response(Some(attempt.destination()), request.wants_json())).await
            }
        }
    }

    async fn serve_socks<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: ClientStream<R, W>,
    ) -> io::Result<()> {
        let target = socks::read_target(&mut client.source, &mut client.sink);
        let target = match timeout(self.connector.limits.head_timeout, target).await {
            Ok(Ok(target)) => target,
            Ok(Err(SocksError::Rejected(SocksRejection { reply, reason, target }))) => {
                let mut sniffed = SniffedRequest::from_protocol("SOCKS5");
                if let Some(target) = target {
                    (sniffed.host, sniffed.port) = (target.host, target.port);
                }
                self.sniffed_attempt(&sniffed).refuse(&Refusal::Malformed(reason.to_owned())).await;
                return client.send_and_close(&reply).await;
            }
            Ok(Err(SocksError::Io(error))) => return Err(error),
            Ok(Err(SocksError::Closed)) => return Ok(()),
            Err(_) => {
                self.sniffed_attempt(&SniffedRequest::from_protocol("SOCKS5")).refuse(&Refusal::TooSlow).await;
                return Ok(());
            }
        };
        let query = self.connector.widen_to_raw(&AccessQuery::tunnel(&target.host, target.port));
        let mut attempt = self.attempt(&query, "SOCKS5");
        match self.open_tunnel(&mut attempt, &query).await {
            Ok(tunnel) => {
                client.sink.write_all(&SocksReply::Succeeded.bytes()).await?;
                self.serve_tunnel(client, tunnel, &query, attempt).await
            }
            Err(refusal) => {
                attempt.refuse(&refusal).await;
                client.send_and_close(&SocksReply::from_refusal(&refusal).bytes()).await
            }
        }
    }

    /// Returns the query for the policy and the attempt of a request.
    fn query_and_attempt(&self, request: &ProxyRequest) -> (AccessQuery, Attempt) {
        let query = request.access_query();
        let attempt = self.attempt(&query, &request.method);
        match &request.target {
            RequestTarget::Resource { path, .. } => (query, attempt.with_path(path)),
            RequestTarget::Tunnel { .. } => (query, attempt),
        }
    }

    /// Returns the attempt of an invalid request, for its record.
    fn sniffed_attempt(&self, sniffed: &SniffedRequest) -> Attempt {
        let to = (sniffed.host.as_str(), sniffed.port);
        let attempt = Attempt::new(self.recorder.clone(), (self.turn)(), to, &sniffed.method);
        match &sniffed.path {
            Some(path) => attempt.with_path(path),
            None => attempt,
        }
    }

    fn attempt(&self, query: &AccessQuery, method: &str) -> Attempt {
        let to = (query.host.as_str(), query.port);
        Attempt::new(self.recorder.clone(), (self.turn)(), to, method).within(&self.in_flight)
    }

    /// Opens a tunnel if the policy allows it. An intercepted tunnel connects later, for each request in it.
    async fn open_tunnel(&self, attempt: &mut Attempt, query: &AccessQuery) -> Result<Tunnel, Refusal> {
        if !self.connector.intercepts(query) {
            return self.connect(attempt, query).await.map(|(stream, endpoint)| Tunnel::Forwarded(stream, endpoint));
        }
        let (endpoint, rule) = self.connector.decide_interception(query)?;
        let session_ca = self.credentials.session_ca.clone().ok_or_else(|| {
            let rule =
                format!("TLS to `{endpoint}` is intercepted (net.intercept), but the session started without it");
            Refusal::built_in(rule, "start a new session with this policy")
        })?;
        Ok(Tunnel::Intercepted(session_ca, endpoint, rule))
    }

    /// Decides, looks up the name, checks the addresses and connects, in this order.
    async fn connect(&self, attempt: &mut Attempt, query: &AccessQuery) -> Result<(TcpStream, Endpoint), Refusal> {
        let (endpoint, rule) = self.connector.decide(query)?;
        attempt.allow(&endpoint, &rule);
        let addresses = self.connector.addresses(&endpoint).await?;
        let (stream, address) = self.connector.connect(&addresses).await?;
        attempt.set_address(address);
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        Ok((stream, endpoint))
    }

    async fn serve_tunnel<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: ClientStream<R, W>,
        tunnel: Tunnel,
        query: &AccessQuery,
        mut attempt: Attempt,
    ) -> io::Result<()> {
        let (upstream, endpoint) = match tunnel {
            Tunnel::Forwarded(upstream, endpoint) => (upstream, endpoint),
            Tunnel::Intercepted(session_ca, endpoint, rule) => {
                return self.serve_intercepted(client, (&session_ca, &endpoint, &rule), attempt).await;
            }
        };
        let traffic = attempt.traffic();
        let forwarded = async {
            if query.raw {
                return tunnel::carry_raw(&mut client, upstream, &traffic).await;
            }
            tunnel::carry(&mut client, upstream, &endpoint, &self.connector, &traffic).await
        };
        match self.connector.guard(query, &traffic, forwarded).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(TunnelError::Refused(refusal))) => return refuse_tunnel(client, attempt, &refusal).await,
            Ok(Err(TunnelError::Broken(error))) => attempt.fail(error.to_string()),
            Err(reason) => attempt.fail(describe_cut(reason)),
        }
        Ok(())
    }

    /// Serves a visible request: over plain HTTP, or inside intercepted TLS.
    pub(crate) async fn serve_resource<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: ClientStream<R, W>,
        request: &ProxyRequest,
    ) -> io::Result<()> {
        let (query, mut attempt) = self.query_and_attempt(request);
        let refusal = match self.exchange(&mut client, request, &query, &mut attempt).await {
            Ok(ExchangeEnd::Complete) => return client.drain().await,
            Ok(ExchangeEnd::Cut) => return Ok(()),
            Err(refusal) => refusal,
        };
        attempt.refuse(&refusal).await;
        client.send_and_close(&refusal.response(Some(attempt.destination()), request.wants_json())).await
    }

    /// Relays a request and its response. If it returns an error, the client still needs an error response.
    async fn exchange<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        client: &mut ClientStream<R, W>,
        request: &ProxyRequest,
        query: &AccessQuery,
        attempt: &mut Attempt,
    ) -> Result<ExchangeEnd, Refusal> {
        let framing = request.framing()?;
        let (upstream, endpoint) = self.connect(attempt, query).await?;
        let prepared = self.prepare_request(request, &endpoint)?;
        let upstream = match query.request.as_ref().map(|request| request.scheme) {
            Some(Scheme::Https) => Either::Right(self.connect_tls(upstream, &endpoint.host).await?),
            Some(Scheme::Http) | None => Either::Left(upstream),
        };
        let traffic = attempt.traffic();
        let forwarded =
            http::forward(client, upstream, (prepared, framing), &endpoint, (&self.connector.limits, &traffic));
        match self.connector.guard(query, &traffic, forwarded).await {
            Ok(Ok(())) => return Ok(ExchangeEnd::Complete),
            Ok(Err(ForwardError::Request(reason))) => return Err(Refusal::Malformed(reason)),
            Ok(Err(ForwardError::Response(reason))) => return Err(Refusal::Unreachable(reason)),
            Ok(Err(ForwardError::Broken(reason))) => attempt.fail(reason),
            Err(reason) => attempt.fail(describe_cut(reason)),
        }
        Ok(ExchangeEnd::Cut)
    }
}

/// Refuses after the tunnel was established. The response fits the protocol that the client started to speak.
pub(crate) async fn refuse_tunnel<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut client: ClientStream<R, W>,
    mut attempt: Attempt,
    refusal: &Refusal,
) -> io::Result<()> {
    attempt.refuse(refusal).await;
    match client.source.buffered().first() {
        Some(&TLS_HANDSHAKE) => client.send_and_close(TLS_DENIED).await,
        Some(byte) if byte.is_ascii_uppercase() => {
            client.send_and_close(&refusal.response(Some(attempt.destination()), false)).await
        }
        _ => Ok(()),
    }
}

fn describe_cut(reason: CutReason) -> String {
    match reason {
        CutReason::Policy(Refusal::Denied { rule, .. }) => format!("closed: the policy now says {rule}"),
        CutReason::Policy(_) => "closed: the policy no longer allows it".to_owned(),
        CutReason::Idle => "closed: idle for too long".to_owned(),
    }
}
