//! A tunnel in which TLS is opened: the client speaks to us, we speak to the host, and judge what is asked for.
//!
//! The tunnel's host is what counts: the certificate is for it, the request goes to it, whatever else is named inside.
//! HTTP/1.1 is spoken, one request a connection, read by the same strict reader as plain HTTP. Nothing is sent to a
//! host that cannot show a certificate the host of the sandbox trusts.

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
    session_ca::SessionCa,
    client_stream::Client,
    session_proxy::{Desk, refuse_tunnel},
    refusal::Refusal,
    tunnel::{TunnelError, first_hello},
};

impl Desk {
    /// Answers a client as the host it opened a tunnel to, and serves what it then asks for.
    pub(crate) async fn serve_opened<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        mut client: Client<R, W>,
        (authority, endpoint, rule): (&SessionCa, &Endpoint, &RuleRef),
        mut attempt: Attempt,
    ) -> io::Result<()> {
        match first_hello(&mut client.source, endpoint, &self.gate).await {
            Ok(_) => {}
            Err(TunnelError::Refused(refusal)) => return refuse_tunnel(client, attempt, &refusal).await,
            Err(TunnelError::Broken(_)) => return Ok(()),
        }
        let acceptor = authority.acceptor(&endpoint.host).map_err(io::Error::other)?;
        let limits = &self.gate.limits;
        let accepted = timeout(limits.head_timeout, acceptor.accept(client)).await;
        let stream = match accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => stream,
            Err(error) => {
                // Most likely it does not trust the certificate: without a record nobody would find out.
                attempt.allow(endpoint, rule);
                attempt.fail(format!("TLS was opened, and the client did not go on: {error}"));
                return Ok(());
            }
        };
        // From here on each request is an attempt of its own; that the tunnel stood is none.
        let mut client = Client::new(tokio::io::split(stream));
        match self.read_request(&mut client, Some(endpoint)).await? {
            Some(request) => self.serve_resource(client, &request).await,
            None => Ok(()),
        }
    }

    /// Speaks TLS to the host itself, which must be who it should be.
    pub(crate) async fn speak_tls(&self, stream: TcpStream, host: &Host) -> Result<TlsStream<TcpStream>, Refusal> {
        let Some(authority) = &self.outfit.authority else {
            return Err(Refusal::Unreachable("TLS is not opened in this session".to_owned()));
        };
        match timeout(self.gate.limits.connect_timeout, authority.connect(host, stream)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => {
                Err(Refusal::Unreachable(format!("TLS with it failed, and nothing was sent to it ({error})")))
            }
            Err(_) => Err(Refusal::NoAnswer("it did not speak TLS in time".to_owned())),
        }
    }
}
