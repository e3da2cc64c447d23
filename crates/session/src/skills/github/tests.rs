//! Tests with archives of a loopback server that is reached by a public name through the real proxy.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use egress::{Egress, Internet};
use futures_util::future::BoxFuture;
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource};
use protocol::SessionId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

/// Resolves every name to a public address, and connects to one loopback server.
struct LoopbackInternet(SocketAddr);

impl Internet for LoopbackInternet {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![IpAddr::from([93, 184, 216, 34])]) })
    }

    fn is_local(&self, _: IpAddr) -> bool {
        false
    }

    fn connect(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect(self.0))
    }
}

type Responder = fn(&str) -> Vec<u8>;

/// Starts a server that responds with `answer` of the request line, over TLS if given. Returns a proxy to it.
async fn proxy_with_tls(tls: Option<TlsAcceptor>, allowed: &str, answer: Responder) -> FetchProxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Some(tls) = &tls else {
                respond(stream, answer).await.unwrap();
                continue;
            };
            // A client that does not trust the certificate hangs up.
            if let Ok(stream) = tls.accept(stream).await {
                respond(stream, answer).await.unwrap();
            }
        }
    });
    let text = format!("version: 1\nnet: {{enabled: true, allowlist: [{allowed}]}}\n");
    let base = BaseLayer::read(&PolicySource::new("test", text)).unwrap();
    let policy: EffectivePolicy = policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]);
    let session = SessionId::new("s").unwrap();
    FetchProxy::open(&Egress::new(Arc::new(LoopbackInternet(address))), session, Arc::new(policy)).unwrap()
}

async fn open_proxy(allowed: &str, answer: Responder) -> FetchProxy {
    proxy_with_tls(None, allowed, answer).await
}

async fn respond(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: Responder) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    stream.write_all(&answer(head.lines().next().unwrap())).await?;
    stream.shutdown().await
}

/// Returns a TLS acceptor for these names, and its root certificate.
fn tls_server(names: &[&str]) -> (TlsAcceptor, CertificateDer<'static>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = builder.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    (TlsAcceptor::from(Arc::new(config)), made.cert.der().clone())
}

/// Returns a TLS configuration with the system's roots alone.
fn system_tls() -> ClientConfig {
    base::tls_client(&[]).unwrap()
}

fn zipped(files: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        let options = SimpleFileOptions::default();
        if let Some(target) = content.strip_prefix("-> ") {
            writer.add_symlink(*name, target, options).unwrap();
        } else {
            writer.start_file(*name, options).unwrap();
            writer.write_all(content.as_bytes()).unwrap();
        }
    }
    writer.finish().unwrap().into_inner()
}

fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn redirect(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into_bytes()
}

const SKILLS: &[(&str, &str)] = &[("name-v1/", ""), ("name-v1/skills/tidy/SKILL.md", "tidy"), ("name-v1/x", "-> /etc")];

/// Responds like GitHub, which redirects requests for archives to another host.
fn like_github(line: &str) -> Vec<u8> {
    match line.split(' ').nth(1).unwrap() {
        "/owner/name/archive/v1.zip" => redirect("http://archives.example.com/owner/name/zip/v1"),
        "/owner/name/zip/v1" => ok(&zipped(SKILLS)),
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(),
    }
}

const BOTH: &str = "\"skills.example.com:80\", \"archives.example.com:80\"";

#[tokio::test]
async fn archive_is_unpacked_without_top_folder_and_links() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("0");
    let proxy = open_proxy(BOTH, like_github).await;
    let address = archive_url("http://skills.example.com/owner/name", Some("v1")).unwrap();
    fetch(&address, &proxy, system_tls(), &folder).await.unwrap();
    proxy.close().await;
    assert_eq!(std::fs::read_to_string(folder.join("skills/tidy/SKILL.md")).unwrap(), "tidy");
    assert!(!folder.join("x").is_symlink(), "a link was unpacked");
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 1, "the fetch left other files");
}

#[tokio::test]
async fn policy_is_checked_for_every_redirect() {
    let temporary = tempfile::tempdir().unwrap();
    let address = archive_url("http://skills.example.com/owner/name", Some("v1")).unwrap();
    for allowed in ["\"other.example.com:80\"", "\"skills.example.com:80\""] {
        let proxy = open_proxy(allowed, like_github).await;
        let refused = fetch(&address, &proxy, system_tls(), &temporary.path().join("0")).await;
        assert!(matches!(refused, Err(SkillError::Denied { .. })), "{refused:?}");
    }
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn invalid_archive_leaves_no_files() {
    for (answer, part) in [
        ((|_| ok(b"<html>")) as fn(&str) -> Vec<u8>, ""),
        (|_| ok(&zipped(&[("name/../../out", "x")])), "leads out"),
        (|_| b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(), "404"),
        (|_| redirect("http://skills.example.com/again"), "too many redirects"),
        (|_| redirect("ftp://skills.example.com/"), "unsupported URL"),
    ] {
        let temporary = tempfile::tempdir().unwrap();
        let proxy = open_proxy(BOTH, answer).await;
        let failed = fetch("http://skills.example.com/a.zip", &proxy, system_tls(), &temporary.path().join("0")).await;
        let Err(SkillError::Fetch { why, .. }) = &failed else { panic!("{failed:?}") };
        assert!(why.contains(part), "{why}");
        assert!(!temporary.path().join("0").exists() && !temporary.path().join("out").exists());
    }
}

/// Responds like GitHub over TLS, with one redirect to plain text.
fn like_github_over_tls(line: &str) -> Vec<u8> {
    match line.split(' ').nth(1).unwrap() {
        "/owner/name/archive/v1.zip" => redirect("https://archives.example.com/owner/name/zip/v1"),
        "/owner/name/archive/plain.zip" => redirect("http://archives.example.com/owner/name/zip/v1"),
        _ => like_github(line),
    }
}

const BOTH_OVER_TLS: &str = "\"skills.example.com:443\", \"archives.example.com:443\", \"archives.example.com:80\"";

/// Fetches an archive over TLS from a server with a certificate for `names`, whose root is trusted or not.
async fn fetch_over_tls(reference: &str, names: &[&str], is_trusted: bool) -> Result<String, SkillError> {
    let (tls, root) = tls_server(names);
    let proxy = proxy_with_tls(Some(tls), BOTH_OVER_TLS, like_github_over_tls).await;
    let temporary = tempfile::tempdir().unwrap();
    let address = archive_url("https://skills.example.com/owner/name", Some(reference)).unwrap();
    let trusted = if is_trusted { base::tls_client(&[root]).unwrap() } else { system_tls() };
    let fetched = fetch(&address, &proxy, trusted, &temporary.path().join("0")).await;
    proxy.close().await;
    fetched.map(|()| std::fs::read_to_string(temporary.path().join("0/skills/tidy/SKILL.md")).unwrap())
}

#[tokio::test]
async fn tls_certificates_are_verified() {
    let both = ["skills.example.com", "archives.example.com"];
    assert_eq!(fetch_over_tls("v1", &both, true).await.unwrap(), "tidy");
    for (reference, names, is_trusted, part) in [
        ("v1", &both[..], false, "UnknownIssuer"),
        ("v1", &both[..1], true, "not valid for name"),
        ("plain", &both[..], true, "invalid redirect"),
    ] {
        let failed = fetch_over_tls(reference, names, is_trusted).await;
        let Err(SkillError::Fetch { why, .. }) = &failed else { panic!("{failed:?}") };
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn invalid_repository_names_are_refused() {
    let of = |name: &str, reference| archive_url(name, reference).ok();
    assert_eq!(of("owner/name", None).unwrap(), "https://github.com/owner/name/archive/HEAD.zip");
    let elsewhere = of("https://git.example.com/owner/name.git", Some("feature/a"));
    assert_eq!(elsewhere.unwrap(), "https://git.example.com/owner/name/archive/feature/a.zip");
    for bad in ["name", "owner/name/../other", "ftp://example.com/a/b", "https://example.com/a", "-a/b"] {
        assert_eq!(of(bad, None), None, "{bad}");
    }
    assert_eq!(of("owner/name", Some("../x")), None);
    assert_eq!(of("owner/name", Some("-x")), None);
}
