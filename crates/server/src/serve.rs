//! Listening, answering, and coming to an end in bounded time.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use session::Sessions;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::AuthMode;
use crate::config::{ServerConfig, ServerListeners};
use crate::peer::Peer;
use crate::router::build;
use crate::tls::TlsConfig;
use crate::unread::Told;

/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait when the system has no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Without a token only this machine may connect.
    #[error("`{0}` can be reached from other machines, so callers must show a token")]
    TokenRequired(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on `{address}`")]
    Tcp {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Who changes what could not be noted.
    #[error("cannot open the audit log `{}`", path.display())]
    Audit {
        /// The path asked for.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The socket cannot be had.
    #[error("cannot listen on the socket `{}`", path.display())]
    Unix {
        /// The path asked for.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Serves `sessions` until `shutdown`, then closes them and lets answers in flight end. `bound` hears the TCP
/// addresses once all listeners are there, in the order asked for.
pub async fn serve(
    listeners: ServerListeners,
    mut config: ServerConfig,
    sessions: Sessions,
    bound: impl FnOnce(&[SocketAddr]),
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (tcp, addresses) = bind_tcp(&listeners, &config).await?;
    config.hosts.extend(addresses.iter().filter_map(name_of));
    // First of all: who looks for this process finds it there, and waits until it answers.
    let unix = listeners.unix.as_deref().map(bind_unix).transpose()?;
    let (accepting, streaming) = (CancellationToken::new(), CancellationToken::new());
    let (connections, drain) = (TaskTracker::new(), config.drain);
    let app = build(sessions.clone(), config, streaming.clone(), connections.clone())?;
    let server = Server { connections: connections.clone(), stopping: accepting.clone(), tls: listeners.tls };
    for listener in tcp {
        connections.spawn(server.clone().accept_tcp(listener, app.clone().layer(Extension(Peer::Tcp))));
    }
    if let Some(listener) = unix {
        connections.spawn(server.clone().accept_unix(listener, app.layer(Extension(Peer::SameUser))));
    }
    bound(&addresses);
    shutdown.await;
    accepting.cancel();
    // Readers still see how their sessions were left, then their streams end.
    sessions.close_all().await;
    streaming.cancel();
    connections.close();
    if tokio::time::timeout(drain, connections.wait()).await.is_err() {
        tracing::warn!("some answers did not end in time and were cut");
    }
    if let Some(path) = listeners.unix {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

async fn bind_tcp(
    listeners: &ServerListeners,
    config: &ServerConfig,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), ServeError> {
    let (mut bound, mut addresses) = (Vec::new(), Vec::new());
    for &address in &listeners.tcp {
        if matches!(config.auth, AuthMode::None) && !address.ip().is_loopback() {
            return Err(ServeError::TokenRequired(address));
        }
        let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Tcp { address, source })?;
        addresses.push(listener.local_addr().map_err(|source| ServeError::Tcp { address, source })?);
        bound.push(listener);
    }
    Ok((bound, addresses))
}

/// What a server is called by who calls the address it listens on; nothing where that is every address there is.
fn name_of(address: &SocketAddr) -> Option<String> {
    match address.ip() {
        ip if ip.is_unspecified() => None,
        IpAddr::V4(ip) => Some(ip.to_string()),
        IpAddr::V6(ip) => Some(format!("[{ip}]")),
    }
}

/// Binds the socket of a data directory. The caller is the one server of it, so a socket that is there is left over.
fn bind_unix(path: &Path) -> Result<UnixListener, ServeError> {
    let failed = |source| ServeError::Unix { path: path.to_owned(), source };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Every connection is a task of its own, counted until it ends.
#[derive(Clone)]
struct Server {
    connections: TaskTracker,
    stopping: CancellationToken,
    tls: Option<TlsConfig>,
}

impl Server {
    async fn accept_tcp(self, listener: TcpListener, app: Router) {
        while let Some(accepted) = self.stopping.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => {
                    // Without it the small frames of a stream wait for acknowledgements.
                    let _ = stream.set_nodelay(true);
                    self.connections.spawn(self.clone().answer_tcp(stream, app.clone()));
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    async fn answer_tcp(self, stream: TcpStream, app: Router) {
        let Some(tls) = self.tls.clone() else { return self.answer(stream, app).await };
        let greeting = self.stopping.run_until_cancelled(tokio::time::timeout(HEAD_TIMEOUT, tls.greet(stream)));
        match greeting.await {
            Some(Ok(Ok(stream))) => self.answer(stream, app).await,
            Some(Ok(Err(error))) => tracing::debug!(%error, "a greeting failed"),
            Some(Err(_)) | None => {}
        }
    }

    async fn accept_unix(self, listener: UnixListener, app: Router) {
        let own = rustix::process::geteuid().as_raw();
        while let Some(accepted) = self.stopping.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => match stream.peer_cred() {
                    Ok(peer) if peer.uid() == own => {
                        self.connections.spawn(self.clone().answer(stream, app.clone()));
                    }
                    // The mode of the socket keeps others out; root and a passed descriptor are not kept by it.
                    _ => tracing::warn!("refused a connection of another user"),
                },
                Err(error) => pause(&error).await,
            }
        }
    }

    async fn answer(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, app: Router) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        let connection = http.serve_connection(TokioIo::new(Told::new(stream)), TowerToHyperService::new(app));
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke");
        }
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_called_by_the_address_it_listens_on() {
        let name = |address: &str| name_of(&address.parse().unwrap());
        assert_eq!(name("127.0.0.2:80").as_deref(), Some("127.0.0.2"));
        assert_eq!(name("[2001:db8::7]:80").as_deref(), Some("[2001:db8::7]"));
        assert_eq!((name("0.0.0.0:80"), name("[::]:80")), (None, None));
    }
}
