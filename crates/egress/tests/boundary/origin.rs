//! The hosts of a test's internet: what they answer, and what reached them.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use crate::world::World;

/// Everything that reached a host, one entry a connection.
#[derive(Clone)]
pub(crate) struct Seen(Arc<watch::Sender<Vec<Vec<u8>>>>);

impl Seen {
    fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    fn add(&self, bytes: Vec<u8>) {
        self.0.send_modify(|seen| seen.push(bytes));
    }

    /// What arrived so far.
    pub(crate) fn now(&self) -> Vec<String> {
        self.0.borrow().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }
}

/// A host of plain HTTP that gives every request the same answer and closes.
pub(crate) async fn http(world: &World, address: &str, answer: &str) -> Seen {
    let (listener, seen, answer) = (world.host(address).await, Seen::new(), answer.to_owned());
    let kept = seen.clone();
    world.run(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let request = read_request(&mut stream).await;
            kept.add(request);
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    seen
}

/// Reads a head and the body it announces; what comes after it is not waited for.
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

/// A host that sends back whatever it is sent.
pub(crate) async fn echo(world: &World, address: &str) {
    let listener = world.host(address).await;
    world.run(async move {
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

/// A TLS host that sends back whatever it is sent, and a client's trust in it.
pub(crate) async fn tls(world: &World, address: &str, name: &str, provider: rustls::crypto::CryptoProvider) -> Trust {
    let (acceptor, trust) = certified(name, provider);
    let listener = world.host(address).await;
    world.run(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let (mut reader, mut writer) = tokio::io::split(stream);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
        }
    });
    trust
}

/// A server that proves to be `name`, to those who trust it.
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

/// A host of HTTPS that gives every request the same answer and closes.
pub(crate) async fn https(world: &World, address: &str, acceptor: TlsAcceptor, answer: &str) -> Seen {
    let (listener, seen, answer) = (world.host(address).await, Seen::new(), answer.to_owned());
    let kept = seen.clone();
    world.run(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let request = read_request(&mut stream).await;
            kept.add(request);
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    seen
}

/// The certificate a client trusts.
pub(crate) struct Trust(CertificateDer<'static>);

impl Trust {
    /// Trust in a certificate that was found somewhere.
    pub(crate) fn of(certificate: &CertificateDer<'static>) -> Self {
        Self(certificate.clone())
    }

    /// The trust of a whole host, as the proxy is told about it.
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

    /// Speaks TLS on a connection that leads to `name`.
    pub(crate) async fn speak(&self, stream: TcpStream, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        self.speak_for(stream, name, &[]).await
    }

    /// The same, for one of these protocols.
    pub(crate) async fn speak_for(
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

/// The first bytes a real TLS client sends, to `name` or without one.
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
