//! TLS interception: the proxy terminates the client's TLS, decides on the request, and opens its own TLS to the host.
//!
//! Only the tunnel's host counts: the certificate is for that host and the request goes to that host. The protocol is
//! HTTP/1.1 with one request per connection, parsed by the same strict parser as plain HTTP. Nothing is sent to a host
//! whose certificate this machine does not trust.

use std::io;

use policy::{Endpoint, Host, RuleRef};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use crate::{
    attempt::Attempt,
    client_stream::ClientStream,
    refusal::Refusal,
    session_ca::SessionCa,
    session_proxy::{SessionProxy, refuse_tunnel},
    tunnel::{TunnelError, first_hello},
};

/// Memory that the two TLS connections of an intercepted tunnel need for their records and buffers.
const TLS_BYTES: usize = 192 << 10;

impl SessionProxy {
    /// Accepts TLS in the name of the tunnel's host and serves the request inside.
    pub(crate) async fn serve_intercepted<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: ClientStream<R, W>,
        (session_ca, endpoint, rule): (&SessionCa, &Endpoint, &RuleRef),
        mut attempt: Attempt,
    ) -> io::Result<()> {
        match first_hello(&mut client.source, endpoint, &self.connector).await {
            Ok(_) => {}
            Err(TunnelError::Refused(refusal)) => return refuse_tunnel(client, attempt, &refusal).await,
            Err(TunnelError::Broken(_)) => return Ok(()),
        }
        let mut reserved = self.in_flight.reservation();
        if let Err(full) = reserved.grow(TLS_BYTES, self.connector.limits.head_timeout).await {
            tracing::warn!(session = %self.session, "closed a tunnel: {full}");
            attempt.allow(endpoint, rule);
            attempt.fail(full.to_string());
            return Ok(());
        }
        let acceptor = session_ca.acceptor(&endpoint.host).map_err(io::Error::other)?;
        let limits = &self.connector.limits;
        let accepted = timeout(limits.head_timeout, acceptor.accept(client)).await;
        let stream = match accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => stream,
            Err(error) => {
                // Usually the client does not trust the session CA. The record is the only place that shows it.
                attempt.allow(endpoint, rule);
                attempt.fail(format!("the client did not accept the intercepted TLS: {error}"));
                return Ok(());
            }
        };
        // From here on each request is a separate attempt; the tunnel itself is not recorded.
        let mut client = ClientStream::new(tokio::io::split(stream));
        match self.read_request(&mut client, Some(endpoint)).await? {
            Some(request) => self.serve_resource(client, &request).await,
            None => Ok(()),
        }
    }

    /// Opens TLS to the real host; fails if its certificate is not trusted.
    pub(crate) async fn connect_tls(&self, stream: TcpStream, host: &Host) -> Result<TlsStream<TcpStream>, Refusal> {
        let Some(session_ca) = &self.credentials.session_ca else {
            return Err(Refusal::Unreachable("this session does not intercept TLS".to_owned()));
        };
        match timeout(self.connector.limits.connect_timeout, session_ca.connect(host, stream)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => {
                Err(Refusal::Unreachable(format!("the TLS handshake failed and nothing was sent ({error})")))
            }
            Err(_) => Err(Refusal::NoAnswer("the TLS handshake timed out".to_owned())),
        }
    }
}
