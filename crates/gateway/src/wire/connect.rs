//! Where a server is, and how to get there: TCP, and TLS where the address says `https`.

use std::{io, sync::Arc};

use base::tls_client;
use http::{Uri, uri::Scheme};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// A connection's bytes, both ways.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// A server: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    tls: bool,
    host: String,
    port: u16,
}

impl Origin {
    /// The server of an address; none: the address names none.
    pub(crate) fn of(address: &Uri) -> Option<Self> {
        let tls = match address.scheme()? {
            scheme if *scheme == Scheme::HTTPS => true,
            scheme if *scheme == Scheme::HTTP => false,
            _ => return None,
        };
        let host = address.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { tls, host, port: address.port_u16().unwrap_or(if tls { 443 } else { 80 }) })
    }

    /// The `host` header.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == if self.tls { 443 } else { 80 } { host } else { format!("{host}:{}", self.port) }
    }
}

/// Makes connections to one server.
#[derive(Clone)]
pub(crate) struct Connector {
    origin: Origin,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Connector {
    /// A way to `origin` that trusts the system's roots and `extra_roots`.
    pub(crate) fn new(origin: Origin, extra_roots: &[CertificateDer<'static>]) -> io::Result<Self> {
        let tls = if origin.tls {
            let name = ServerName::try_from(origin.host.clone()).map_err(io::Error::other)?;
            Some((TlsConnector::from(Arc::new(tls_client(extra_roots)?)), name))
        } else {
            None
        };
        Ok(Self { origin, tls })
    }

    /// The server.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) async fn connect(&self) -> io::Result<Box<dyn Wire>> {
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
    fn an_address_names_its_server() {
        let authority = |address: &str| Origin::of(&address.parse().unwrap()).map(|origin| origin.authority());
        assert_eq!(authority("https://api.example.com").as_deref(), Some("api.example.com"));
        assert_eq!(authority("http://127.0.0.1:8080/v1").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(authority("http://[::1]:80/").as_deref(), Some("[::1]"));
        assert_eq!(authority("ftp://example.com/"), None);
        assert_eq!(authority("/v1"), None);
    }
}
