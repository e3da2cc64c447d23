//! The hosts of the simulated network, and the bytes that reached them.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use crate::test_network::TestNetwork;

/// The bytes that reached a host, one entry per connection.
#[derive(Clone)]
pub(crate) struct Seen(Arc<watch::Sender<Vec<Vec<u8>>>>);

impl Seen {
    fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    fn add(&self, bytes: Vec<u8>) {
        self.0.send_modify(|seen| seen.push(bytes));
    }

    /// Returns the bytes that have arrived so far.
    pub(crate) fn now(&self) -> Vec<String> {
        self.0.borrow().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }
}

/// Runs a plain HTTP host that gives every request the same response and closes.
pub(crate) async fn http(network: &TestNetwork, address: &str, response: &str) -> Seen {
    let (listener, seen, response) = (network.host(address).await, Seen::new(), response.to_owned());
    let kept = seen.clone();
    network.run(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let request = read_request(&mut stream).await;
            kept.add(request);
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    seen
}

/// Reads a head and the body that it announces, and nothing after it.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !is_whole(&bytes) {
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => break,
        }
    }
    bytes
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    match length.map(|length| length.parse::<usize>().unwrap()) {
        Some(length) => body.len() >= length,
        None if head.contains("transfer-encoding: chunked") => body.ends_with("0\r\n\r\n"),
        None => true,
    }
}

/// Runs a host that echoes.
pub(crate) async fn echo(network: &TestNetwork, address: &str) {
    let listener = network.host(address).await;
    network.run(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            });
        }
    });
}

/// Runs a TLS host that echoes, and returns the trust of its clients.
pub(crate) async fn tls(
    network: &TestNetwork,
    address: &str,
    name: &str,
    provider: rustls::crypto::CryptoProvider,
) -> Trust {
    let (acceptor, trust) = certified(name, provider);
    let listener = network.host(address).await;
    network.run(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let (mut reader, mut writer) = tokio::io::split(stream);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
        }
    });
    trust
}

/// Returns a TLS server with a certificate for `name`, and the trust of its clients.
pub(crate) fn certified(name: &str, provider: rustls::crypto::CryptoProvider) -> (TlsAcceptor, Trust) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), Trust(certificate.der().clone()))
}

/// Runs an HTTPS host that gives every request the same response and closes.
pub(crate) async fn https(network: &TestNetwork, address: &str, acceptor: TlsAcceptor, response: &str) -> Seen {
    let (listener, seen, response) = (network.host(address).await, Seen::new(), response.to_owned());
    let kept = seen.clone();
    network.run(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let request = read_request(&mut stream).await;
            kept.add(request);
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    seen
}

/// The root certificate that a client trusts.
pub(crate) struct Trust(CertificateDer<'static>);

impl Trust {
    /// Returns the trust in a certificate.
    pub(crate) fn of(certificate: &CertificateDer<'static>) -> Self {
        Self(certificate.clone())
    }

    /// Returns the trust store of a host, for the proxy.
    pub(crate) fn host_trust(&self) -> egress::TrustStore {
        egress::TrustStore { roots: vec![self.0.clone()], client: Arc::new(self.client(&[b"http/1.1"])) }
    }

    fn client(&self, protocols: &[&[u8]]) -> rustls::ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.0.clone()).unwrap();
        let mut config = client_config().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config
    }

    /// Opens TLS to `name` on a connection.
    pub(crate) async fn connect_tls(&self, stream: TcpStream, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_tls_with(stream, name, &[]).await
    }

    /// Opens TLS to `name` and offers these protocols.
    pub(crate) async fn connect_tls_with(
        &self,
        stream: TcpStream,
        name: &str,
        protocols: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let config = self.client(protocols);
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

fn client_config() -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap()
}

/// Returns the ClientHello of a real TLS client, with or without a server name.
pub(crate) fn hello(name: Option<&str>) -> Vec<u8> {
    let roots = rustls::RootCertStore::empty();
    let mut config = client_config().with_root_certificates(roots).with_no_client_auth();
    config.enable_sni = name.is_some();
    let server = ServerName::try_from(name.unwrap_or("unused.example.com").to_owned()).unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), server).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}
