//! Downloads a document through the egress proxy of a session.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HOST, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::SkillError;
use super::fetch_proxy::FetchProxy;

/// Largest download.
const MAX_BYTES: usize = 64 << 20;
/// Redirects that are followed.
const MAX_REDIRECTS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(120);
/// Longest response head of the proxy to a CONNECT request.
const MAX_HEAD_BYTES: usize = 16 << 10;

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Returns the body at `address`, following redirects. Fails when the policy denies a host on the way.
pub(super) async fn get(address: &str, proxy: &FetchProxy, tls: Arc<ClientConfig>) -> Result<Vec<u8>, SkillError> {
    let failed = |why: String| SkillError::Fetch { source_name: address.to_owned(), why };
    let fetching = async {
        let mut next: Uri = address.parse().map_err(|_| SkillError::Invalid(address.to_owned()))?;
        for _ in 0..=MAX_REDIRECTS {
            let endpoint = Endpoint::of(&next).ok_or_else(|| failed(format!("unsupported URL `{next}`")))?;
            proxy.check(address, &endpoint.host, endpoint.port)?;
            // Dropping the set ends the connection.
            let mut connections = JoinSet::new();
            let request = send_request(&mut connections, &next, &endpoint, proxy, tls.clone());
            let response = request.await.map_err(failed)?;
            if !response.status().is_redirection() {
                return read_body(response).await.map_err(failed);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            next = location
                .and_then(|to| redirect_target(&next, to))
                .ok_or_else(|| failed("invalid redirect".to_owned()))?;
        }
        Err(failed("too many redirects".to_owned()))
    };
    tokio::time::timeout(TIMEOUT, fetching).await.unwrap_or_else(|_| Err(failed("timed out".to_owned())))
}

/// Scheme, host and port of a URL.
struct Endpoint {
    tls: bool,
    host: String,
    port: u16,
}

impl Endpoint {
    fn of(address: &Uri) -> Option<Self> {
        let tls = match address.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        // A user name and password in a URL would end up in the journal.
        if address.authority()?.as_str().contains('@') {
            return None;
        }
        let port = address.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Some(Self { tls, host: address.host()?.to_owned(), port })
    }
}

/// Returns the target of a redirect: a URL, or a path on the same host. Refuses a redirect from TLS to plain text.
fn redirect_target(from: &Uri, to: &str) -> Option<Uri> {
    let to =
        if to.starts_with('/') { format!("{}://{}{to}", from.scheme()?, from.authority()?) } else { to.to_owned() };
    let to: Uri = to.parse().ok()?;
    (from.scheme_str() != Some("https") || to.scheme_str() == Some("https")).then_some(to)
}

/// Sends a GET request through the proxy. The connection runs as a task of `connections`.
async fn send_request(
    connections: &mut JoinSet<()>,
    address: &Uri,
    endpoint: &Endpoint,
    proxy: &FetchProxy,
    tls: Arc<ClientConfig>,
) -> Result<Response<Incoming>, String> {
    let message = |error: &dyn std::error::Error| error.to_string();
    let mut stream = TcpStream::connect(proxy.address()).await.map_err(|error| message(&error))?;
    let authority = address.authority().map_or("", |authority| authority.as_str());
    let mut target = address.to_string();
    let transport: Box<dyn ByteStream> = if endpoint.tls {
        open_tunnel(&mut stream, endpoint).await?;
        target = address.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| message(&error))?;
        Box::new(TlsConnector::from(tls).connect(name, stream).await.map_err(|error| message(&error))?)
    } else {
        Box::new(stream)
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(transport)).await.map_err(|error| message(&error))?;
    connections.spawn(async move { drop(connection.await) });
    let request = Request::get(target).header(HOST, authority).header(USER_AGENT, "viv").body(Empty::<Bytes>::new());
    sender.send_request(request.map_err(|error| message(&error))?).await.map_err(|error| message(&error))
}

/// Asks the proxy for a tunnel to `endpoint`.
async fn open_tunnel(stream: &mut TcpStream, endpoint: &Endpoint) -> Result<(), String> {
    let Endpoint { host, port, .. } = endpoint;
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n");
    let mut head = Vec::new();
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD_BYTES {
            head.push(stream.read_u8().await?);
        }
        std::io::Result::Ok(())
    };
    exchange.await.map_err(|error| error.to_string())?;
    let first = String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    if first.split(' ').nth(1) == Some("200") { Ok(()) } else { Err(format!("the egress proxy replied `{first}`")) }
}

async fn read_body(response: Response<Incoming>) -> Result<Vec<u8>, String> {
    if response.status() != StatusCode::OK {
        return Err(format!("the server answered {}", response.status()));
    }
    let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
    body.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string())
}
