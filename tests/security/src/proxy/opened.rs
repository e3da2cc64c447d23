//! Attacks on intercepted TLS, and on injected credentials.
//!
//! The attackers trust every certificate, so that only the proxy can stop them. `opened.example.com` is allowed below
//! `/public`, and sends the secret to requests for the vault. `keyed.example.com` echoes requests, and the proxy injects
//! the secret into them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};

use super::Run;
use super::say::{get, say, to_proxy};
use crate::attack::Verdict;

const HOST: &str = "opened.example.com";
const PATIENCE: Duration = Duration::from_secs(5);

/// Name, description and function of each attack.
pub(super) const ATTACKS: &[(&str, &str, Run)] = &[
    ("proxy_tls_unlisted", "request an unlisted path in intercepted TLS", |_| ask("GET", "/vault")),
    ("proxy_tls_path", "climb out of the listed path", |_| ask("GET", "/public/../vault")),
    ("proxy_tls_path_encoded", "the same in percent-encoding", |_| ask("GET", "/public/%2e%2e/vault")),
    ("proxy_tls_path_slashes", "the same by two slashes", |_| ask("GET", "//vault")),
    ("proxy_tls_method", "use a method that is not listed", |_| ask("DELETE", "/public/vault")),
    ("proxy_tls_host", "name another host in the Host header than in the tunnel", |_| {
        in_tls(HOST, &[], &request("GET", "/public/a", "vault.example.com"))
    }),
    ("proxy_tls_target", "name another host in the target", |_| {
        in_tls(HOST, &[], &request("GET", "https://vault.example.com/public/a", HOST))
    }),
    ("proxy_tls_smuggle", "smuggle a request in intercepted TLS by a length and chunks at once", |_| {
        hiding("Content-Length: 60\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")
    }),
    ("proxy_tls_smuggle_lengths", "the same by two lengths", |_| {
        hiding("Content-Length: 0\r\nContent-Length: 60\r\n", "")
    }),
    ("proxy_tls_behind", "send a second request, for another host, behind the first", |_| hiding("", "")),
    ("proxy_tls_upgrade", "switch to another protocol in intercepted TLS", |_| {
        let switch = format!("GET /public/a HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: vault\r\n\r\n");
        in_tls(HOST, &[], switch.as_bytes())
    }),
    ("proxy_tls_h2", "agree on HTTP/2, which the proxy does not inspect", |_| {
        in_tls(HOST, &[b"h2"], b"PRI * HTTP/2.0\r\n\r\n")
    }),
    ("proxy_tls_sni", "ask for another server by TLS than by CONNECT, in an intercepted tunnel", |_| {
        in_tls("vault.example.com", &[], &request("GET", "/public/a", HOST))
    }),
    ("proxy_tls_plain", "speak clear text to a host whose TLS is intercepted", |_| {
        get("http://opened.example.com:443/public/vault", "opened.example.com:443")
    }),
    ("proxy_tls_impostor", "reach a host with the certificate of another", |_| {
        tunnelled(
            "impostor.example.com",
            "impostor.example.com",
            &[],
            &request("GET", "/vault", "impostor.example.com"),
        )
    }),
    ("proxy_key_echo", "have a host echo the injected credential", |_| {
        get("http://keyed.example.com/", "keyed.example.com")
    }),
    ("proxy_key_trace", "have it echoed by TRACE", |_| {
        say(b"TRACE http://keyed.example.com/ HTTP/1.1\r\nHost: keyed.example.com\r\n\r\n")
    }),
    ("proxy_key_own", "keep it together with the attacker's own header", |_| {
        say(b"GET http://keyed.example.com/ HTTP/1.1\r\nHost: keyed.example.com\r\nX-Key: mine\r\n\r\n")
    }),
];

fn request(method: &str, path: &str, host: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

fn ask(method: &str, path: &str) -> Verdict {
    in_tls(HOST, &[], &request(method, path, HOST))
}

/// Returns an allowed request with another request behind it.
fn hiding(headers: &str, body: &str) -> Verdict {
    let hidden = "GET /vault HTTP/1.1\r\nHost: vault.example.com\r\n\r\n";
    let first = format!("GET /public/a HTTP/1.1\r\nHost: {HOST}\r\n{headers}\r\n{body}{hidden}");
    in_tls(HOST, &[], first.as_bytes())
}

fn in_tls(name: &str, protocols: &[&[u8]], bytes: &[u8]) -> Verdict {
    tunnelled(HOST, name, protocols, bytes)
}

/// Sends a request in TLS to `name`, in a tunnel to `to`, and prints the answer.
fn tunnelled(to: &str, name: &str, protocols: &[&[u8]], bytes: &[u8]) -> Verdict {
    let mut stream = to_proxy();
    stream.set_read_timeout(Some(PATIENCE)).expect("socket");
    write!(stream, "CONNECT {to}:443 HTTP/1.1\r\nHost: {to}:443\r\n\r\n").expect("say");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            break;
        }
        answer.push(byte[0]);
    }
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Verdict::Blocked(String::from_utf8_lossy(&answer).into_owned());
    }
    let mut config = trusting_all();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).expect("name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("client");
    let mut stream: StreamOwned<_, TcpStream> = StreamOwned::new(connection, stream);
    let sent = stream.write_all(bytes).and_then(|()| stream.flush());
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    let heard = String::from_utf8_lossy(&heard).into_owned();
    println!("{heard}");
    Verdict::Blocked(format!("{sent:?}, {}", heard.lines().next().unwrap_or("nothing")))
}

fn trusting_all() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.expect("versions").dangerous();
    builder.with_custom_certificate_verifier(Arc::new(Trusting(provider))).with_no_client_auth()
}

/// Trusts every certificate.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
