//! Archives of a server on the loopback, reached by a public name through the real proxy.

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

/// Every name has a public address, and behind it is one server on the loopback.
struct World(SocketAddr);

impl Internet for World {
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

type Answers = fn(&str) -> Vec<u8>;

/// A server that answers each request with what `answer` makes of its first line, over TLS where it has a certificate.
async fn way_over(tls: Option<TlsAcceptor>, allowed: &str, answer: Answers) -> Way {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Some(tls) = &tls else {
                converse(stream, answer).await.unwrap();
                continue;
            };
            // Who does not trust it hangs up.
            if let Ok(stream) = tls.accept(stream).await {
                converse(stream, answer).await.unwrap();
            }
        }
    });
    let text = format!("version: 1\nnet: {{enabled: true, allowlist: [{allowed}]}}\n");
    let base = BaseLayer::read(&PolicySource::new("test", text)).unwrap();
    let policy: EffectivePolicy = policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]);
    let session = SessionId::new("s").unwrap();
    Way::open(&Egress::new(Arc::new(World(address))), session, Arc::new(policy)).unwrap()
}

async fn way(allowed: &str, answer: Answers) -> Way {
    way_over(None, allowed, answer).await
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: Answers) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    stream.write_all(&answer(head.lines().next().unwrap())).await?;
    stream.shutdown().await
}

/// A server's side of TLS for these names, and the root that vouches for it.
fn certified(names: &[&str]) -> (TlsAcceptor, CertificateDer<'static>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = builder.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    (TlsAcceptor::from(Arc::new(config)), made.cert.der().clone())
}

/// What trusts the roots of the system alone.
fn usual() -> ClientConfig {
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

/// What GitHub does: it sends whoever asks for an archive to another host.
fn like_github(line: &str) -> Vec<u8> {
    match line.split(' ').nth(1).unwrap() {
        "/owner/name/archive/v1.zip" => redirect("http://archives.example.com/owner/name/zip/v1"),
        "/owner/name/zip/v1" => ok(&zipped(SKILLS)),
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(),
    }
}

const BOTH: &str = "\"skills.example.com:80\", \"archives.example.com:80\"";

#[tokio::test]
async fn an_archive_is_unpacked_without_its_topmost_folder_and_its_links() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("0");
    let way = way(BOTH, like_github).await;
    let address = archive("http://skills.example.com/owner/name", Some("v1")).unwrap();
    fetch(&address, &way, usual(), &folder).await.unwrap();
    way.close().await;
    assert_eq!(std::fs::read_to_string(folder.join("skills/tidy/SKILL.md")).unwrap(), "tidy");
    assert!(!folder.join("x").is_symlink(), "a link was unpacked");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "something was left beside it");
}

#[tokio::test]
async fn every_host_on_the_way_is_held_against_the_policy() {
    let place = tempfile::tempdir().unwrap();
    let address = archive("http://skills.example.com/owner/name", Some("v1")).unwrap();
    for allowed in ["\"other.example.com:80\"", "\"skills.example.com:80\""] {
        let way = way(allowed, like_github).await;
        let refused = fetch(&address, &way, usual(), &place.path().join("0")).await;
        assert!(matches!(refused, Err(SkillError::Denied { .. })), "{refused:?}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_is_no_archive_or_leads_out_leaves_nothing() {
    for (answer, part) in [
        ((|_| ok(b"<html>")) as fn(&str) -> Vec<u8>, ""),
        (|_| ok(&zipped(&[("name/../../out", "x")])), "leads out"),
        (|_| b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(), "404"),
        (|_| redirect("http://skills.example.com/again"), "from one place to the next"),
        (|_| redirect("ftp://skills.example.com/"), "it leads to"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let way = way(BOTH, answer).await;
        let failed = fetch("http://skills.example.com/a.zip", &way, usual(), &place.path().join("0")).await;
        let Err(SkillError::Fetch { why, .. }) = &failed else { panic!("{failed:?}") };
        assert!(why.contains(part), "{why}");
        assert!(!place.path().join("0").exists() && !place.path().join("out").exists());
    }
}

/// The same over TLS, with a last step back to plain text for who asks for it.
fn like_github_over_tls(line: &str) -> Vec<u8> {
    match line.split(' ').nth(1).unwrap() {
        "/owner/name/archive/v1.zip" => redirect("https://archives.example.com/owner/name/zip/v1"),
        "/owner/name/archive/plain.zip" => redirect("http://archives.example.com/owner/name/zip/v1"),
        _ => like_github(line),
    }
}

const BOTH_OVER_TLS: &str = "\"skills.example.com:443\", \"archives.example.com:443\", \"archives.example.com:80\"";

/// What comes of an archive over TLS, from a server that is certified for `names`, by a root that we trust or not.
async fn over_tls(reference: &str, names: &[&str], is_trusted: bool) -> Result<String, SkillError> {
    let (tls, root) = certified(names);
    let way = way_over(Some(tls), BOTH_OVER_TLS, like_github_over_tls).await;
    let place = tempfile::tempdir().unwrap();
    let address = archive("https://skills.example.com/owner/name", Some(reference)).unwrap();
    let trusted = if is_trusted { base::tls_client(&[root]).unwrap() } else { usual() };
    let fetched = fetch(&address, &way, trusted, &place.path().join("0")).await;
    way.close().await;
    fetched.map(|()| std::fs::read_to_string(place.path().join("0/skills/tidy/SKILL.md")).unwrap())
}

#[tokio::test]
async fn an_archive_comes_over_tls_from_servers_that_are_who_they_say() {
    let both = ["skills.example.com", "archives.example.com"];
    assert_eq!(over_tls("v1", &both, true).await.unwrap(), "tidy");
    for (reference, names, is_trusted, part) in [
        ("v1", &both[..], false, "UnknownIssuer"),
        ("v1", &both[..1], true, "not valid for name"),
        ("plain", &both[..], true, "it leads nowhere"),
    ] {
        let failed = over_tls(reference, names, is_trusted).await;
        let Err(SkillError::Fetch { why, .. }) = &failed else { panic!("{failed:?}") };
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn only_names_of_repositories_have_an_archive() {
    let of = |name: &str, reference| archive(name, reference).ok();
    assert_eq!(of("owner/name", None).unwrap(), "https://github.com/owner/name/archive/HEAD.zip");
    let elsewhere = of("https://git.example.com/owner/name.git", Some("feature/a"));
    assert_eq!(elsewhere.unwrap(), "https://git.example.com/owner/name/archive/feature/a.zip");
    for bad in ["name", "owner/name/../other", "ftp://example.com/a/b", "https://example.com/a", "-a/b"] {
        assert_eq!(of(bad, None), None, "{bad}");
    }
    assert_eq!(of("owner/name", Some("../x")), None);
    assert_eq!(of("owner/name", Some("-x")), None);
}
