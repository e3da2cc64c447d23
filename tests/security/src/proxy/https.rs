//! TLS hosts of the internet, each with its own certificate.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A host with a certificate for its name.
const OPENED: (&str, &str) = ("203.0.113.20:443", "opened.example.com");
/// A host with a certificate for another name.
const IMPOSTOR: (&str, &str) = ("203.0.113.21:443", "elsewhere.example.com");
const QUIET: Duration = Duration::from_millis(150);

/// Serves both hosts, and returns the root certificates.
pub(super) fn serve(secret: &str) -> Vec<CertificateDer<'static>> {
    [OPENED, IMPOSTOR].map(|(address, name)| serve_one(address, name, secret.into())).into()
}

fn serve_one(address: &str, name: &str, secret: Arc<str>) -> CertificateDer<'static> {
    let key = rcgen::KeyPair::generate().expect("key");
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("name");
    let certificate = params.self_signed(&key).expect("certificate").der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("key");
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate.clone()], key).expect("server");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let (config, listener) = (Arc::new(config), TcpListener::bind(address).expect("host"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, secret) = (config.clone(), secret.clone());
            std::thread::spawn(move || answer(stream, config, &secret));
        }
    });
    certificate
}

/// Sends the secret when a request names a vault in any form, or uses a protocol that the proxy cannot inspect.
fn answer(mut stream: TcpStream, config: Arc<ServerConfig>, secret: &str) -> io::Result<()> {
    let told = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut first = [0];
    if stream.peek(&mut first)? == 1 && first[0] != 22 {
        let _ = stream.read(&mut [0; 4096])?;
        return stream.write_all(told(secret).as_bytes());
    }
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    // All bytes without a pause count, including those behind the first request.
    while let Ok(count) = stream.read(&mut buffer) {
        if count == 0 {
            break;
        }
        said.extend_from_slice(&buffer[..count]);
        stream.sock.set_read_timeout(Some(QUIET))?;
    }
    let named = stream.conn.server_name().is_some_and(|name| name.contains("vault"));
    let unseen = stream.conn.alpn_protocol() == Some(b"h2");
    let vault = said.windows(5).any(|window| window == b"vault");
    let text = told(if named || unseen || vault { secret } else { "ok" });
    stream.write_all(text.as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()
}
