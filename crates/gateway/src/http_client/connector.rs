//! Connections to one server over TCP, with TLS for `https` addresses.

use std::{io, sync::Arc};

use base::tls_client;
use http::{Uri, uri::Scheme};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// A bidirectional byte stream: TCP or TLS.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// Scheme, host and port of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerOrigin {
    tls: bool,
    host: String,
    port: u16,
}

impl ServerOrigin {
    /// Returns the server of `address`; `None` without an `http` or `https` scheme and a host.
    pub(crate) fn from_uri(address: &Uri) -> Option<Self> {
        let tls = match address.scheme()? {
            scheme if *scheme == Scheme::HTTPS => true,
            scheme if *scheme == Scheme::HTTP => false,
            _ => return None,
        };
        let host = address.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { tls, host, port: address.port_u16().unwrap_or(if tls { 443 } else { 80 }) })
    }

    /// Returns the value of the `host` header.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == if self.tls { 443 } else { 80 } { host } else { format!("{host}:{}", self.port) }
    }
}

/// Opens connections to one server.
#[derive(Clone)]
pub(crate) struct ServerConnector {
    origin: ServerOrigin,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl ServerConnector {
    /// Creates a connector that trusts the system's root certificates and `extra_roots`.
    pub(crate) fn new(origin: ServerOrigin, extra_roots: &[CertificateDer<'static>]) -> io::Result<Self> {
        let tls = if origin.tls {
            let name = ServerName::try_from(origin.host.clone()).map_err(io::Error::other)?;
            Some((TlsConnector::from(Arc::new(tls_client(extra_roots)?)), name))
        } else {
            None
        };
        Ok(Self { origin, tls })
    }

    /// Returns the server.
    pub(crate) fn origin(&self) -> &ServerOrigin {
        &self.origin
    }

    pub(super) async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let stream = TcpStream::connect((self.origin.host.as_str(), self.origin.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            Some((connector, name)) => Ok(Box::new(connector.connect(name.clone(), stream).await?)),
            None => Ok(Box::new(stream)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_read_from_the_address() {
        let authority =
            |address: &str| ServerOrigin::from_uri(&address.parse().unwrap()).map(|origin| origin.authority());
        assert_eq!(authority("https://api.example.com").as_deref(), Some("api.example.com"));
        assert_eq!(authority("http://127.0.0.1:8080/v1").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(authority("http://[::1]:80/").as_deref(), Some("[::1]"));
        assert_eq!(authority("ftp://example.com/"), None);
        assert_eq!(authority("/v1"), None);
    }
}
