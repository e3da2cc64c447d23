//! TLS for the API: one certificate and one key, read when the server starts.
//!
//! Invalid files are an error before the server listens. A server never falls back to plain HTTP.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, crypto};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The reason why a certificate and its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read, or does not contain the expected item.
    #[error("cannot read a {what} in PEM from `{}`", path.display())]
    File {
        /// The expected item.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The parser's error.
        #[source]
        source: pem::Error,
    },
    /// The file contains no certificate.
    #[error("`{}` contains no certificate", .0.display())]
    NoCertificate(PathBuf),
    /// The key does not belong to the certificate.
    #[error("the certificate `{}` and the key `{}` do not belong together", certificate.display(), key.display())]
    Mismatch {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// The TLS library's error.
        #[source]
        source: rustls::Error,
    },
}

/// A certificate and its key.
#[derive(Clone)]
pub struct TlsConfig(TlsAcceptor);

impl std::fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsConfig")
    }
}

impl TlsConfig {
    /// Reads a certificate chain, the server's certificate first, and its key.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let unreadable = |what, path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::File { what, path, source }
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
        let chain = chain.map_err(unreadable("certificate", certificate))?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate(certificate.to_owned()));
        }
        let secret = PrivateKeyDer::from_pem_file(key).map_err(unreadable("private key", key))?;
        let paired = |source| TlsError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned(), source };
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let built = builder.and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
        let mut config = built.map_err(paired)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Performs the TLS handshake.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}
