//! A document of the web, fetched through the way of a session.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HOST, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::SkillError;
use super::way::Way;

/// More than this is no archive of skills.
const MOST_BYTES: usize = 64 << 20;
/// A server that sends us on more often leads nowhere.
const REDIRECTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest answer of the proxy to a request for a tunnel.
const HEAD_BYTES: usize = 16 << 10;

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Fetches `address`, and where it sends us on to; every host is held against the policy.
pub(super) async fn get(address: &str, way: &Way, tls: Arc<ClientConfig>) -> Result<Vec<u8>, SkillError> {
    let failed = |why: String| SkillError::Fetch { source_name: address.to_owned(), why };
    let fetching = async {
        let mut next: Uri = address.parse().map_err(|_| SkillError::Unusable(address.to_owned()))?;
        for _ in 0..=REDIRECTS {
            let place = Place::of(&next).ok_or_else(|| failed(format!("it leads to `{next}`")))?;
            way.judge(address, &place.host, place.port)?;
            let answer = ask(&next, &place, way, tls.clone()).await.map_err(failed)?;
            if !answer.status().is_redirection() {
                return read(answer).await.map_err(failed);
            }
            let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            next = location.and_then(|to| onward(&next, to)).ok_or_else(|| failed("it leads nowhere".to_owned()))?;
        }
        Err(failed("it leads from one place to the next".to_owned()))
    };
    tokio::time::timeout(PATIENCE, fetching).await.unwrap_or_else(|_| Err(failed("it took too long".to_owned())))
}

/// Scheme, host and port of an address.
struct Place {
    tls: bool,
    host: String,
    port: u16,
}

impl Place {
    fn of(address: &Uri) -> Option<Self> {
        let tls = match address.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        // A name and a password in an address would end in records.
        if address.authority()?.as_str().contains('@') {
            return None;
        }
        let port = address.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Some(Self { tls, host: address.host()?.to_owned(), port })
    }
}

/// Where a redirect leads: an address, or a path on the same host. Never from TLS to plain text.
fn onward(from: &Uri, to: &str) -> Option<Uri> {
    let to =
        if to.starts_with('/') { format!("{}://{}{to}", from.scheme()?, from.authority()?) } else { to.to_owned() };
    let to: Uri = to.parse().ok()?;
    (from.scheme_str() != Some("https") || to.scheme_str() == Some("https")).then_some(to)
}

async fn ask(address: &Uri, place: &Place, way: &Way, tls: Arc<ClientConfig>) -> Result<Response<Incoming>, String> {
    let told = |error: &dyn std::error::Error| error.to_string();
    let mut stream = TcpStream::connect(way.address()).await.map_err(|error| told(&error))?;
    let authority = address.authority().map_or("", |authority| authority.as_str());
    let mut target = address.to_string();
    let wire: Box<dyn Wire> = if place.tls {
        tunnel(&mut stream, place).await?;
        target = address.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let name = ServerName::try_from(place.host.clone()).map_err(|error| told(&error))?;
        Box::new(TlsConnector::from(tls).connect(name, stream).await.map_err(|error| told(&error))?)
    } else {
        Box::new(stream)
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(wire)).await.map_err(|error| told(&error))?;
    // Ends by itself when the answer is read or dropped.
    tokio::spawn(connection);
    let request = Request::get(target).header(HOST, authority).header(USER_AGENT, "viv").body(Empty::<Bytes>::new());
    sender.send_request(request.map_err(|error| told(&error))?).await.map_err(|error| told(&error))
}

/// Asks the proxy for a connection to `place`.
async fn tunnel(stream: &mut TcpStream, place: &Place) -> Result<(), String> {
    let Place { host, port, .. } = place;
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n");
    let mut head = Vec::new();
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES {
            head.push(stream.read_u8().await?);
        }
        std::io::Result::Ok(())
    };
    exchange.await.map_err(|error| error.to_string())?;
    let first = String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    if first.split(' ').nth(1) == Some("200") { Ok(()) } else { Err(format!("the egress proxy said `{first}`")) }
}

async fn read(answer: Response<Incoming>) -> Result<Vec<u8>, String> {
    if answer.status() != StatusCode::OK {
        return Err(format!("the server answered {}", answer.status()));
    }
    let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
    body.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string())
}
