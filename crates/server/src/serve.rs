//! The HTTP server: listeners, connections and a shutdown in bounded time.

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

/// Most time for a client to send a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept, usually because the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The reason why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Without tokens only loopback addresses are allowed.
    #[error("cannot listen on `{0}` without tokens: other machines can reach this address")]
    TokenRequired(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on `{address}`")]
    Tcp {
        /// The requested address.
        address: SocketAddr,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The audit log cannot be opened.
    #[error("cannot open the audit log `{}`", path.display())]
    Audit {
        /// The requested path.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The Unix socket cannot be bound.
    #[error("cannot listen on the socket `{}`", path.display())]
    Unix {
        /// The requested path.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
}

/// Serves `sessions` until `shutdown`, then closes them and waits for running responses, at most `config.drain`.
///
/// `bound` is called with the TCP addresses, in the given order, once all listeners are bound.
pub async fn serve(
    listeners: ServerListeners,
    mut config: ServerConfig,
    sessions: Sessions,
    bound: impl FnOnce(&[SocketAddr]),
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (tcp, addresses) = bind_tcp(&listeners, &config).await?;
    config.hosts.extend(addresses.iter().filter_map(host_name));
    // Bound before the rest is built: clients that look for this process connect and wait for its response.
    let unix = listeners.unix.as_deref().map(bind_unix).transpose()?;
    let (accepting, streaming) = (CancellationToken::new(), CancellationToken::new());
    let (connections, drain) = (TaskTracker::new(), config.drain);
    let app = build(sessions.clone(), config, streaming.clone(), connections.clone())?;
    let server = ConnectionServer { connections: connections.clone(), stopping: accepting.clone(), tls: listeners.tls };
    for listener in tcp {
        connections.spawn(server.clone().accept_tcp(listener, app.clone().layer(Extension(Peer::Tcp))));
    }
    if let Some(listener) = unix {
        connections.spawn(server.clone().accept_unix(listener, app.layer(Extension(Peer::SameUser))));
    }
    bound(&addresses);
    shutdown.await;
    accepting.cancel();
    // Clients get the last events of their sessions before their streams end.
    sessions.close_all().await;
    streaming.cancel();
    connections.close();
    if tokio::time::timeout(drain, connections.wait()).await.is_err() {
        tracing::warn!("some responses did not end in time; closing their connections");
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

/// Returns the host name of a listening address; `None` for an unspecified address.
fn host_name(address: &SocketAddr) -> Option<String> {
    match address.ip() {
        ip if ip.is_unspecified() => None,
        IpAddr::V4(ip) => Some(ip.to_string()),
        IpAddr::V6(ip) => Some(format!("[{ip}]")),
    }
}

/// Binds the socket of a data directory. The caller is its only server, so an existing socket file is stale.
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

/// Serves connections, each in its own task of `connections`.
#[derive(Clone)]
struct ConnectionServer {
    connections: TaskTracker,
    stopping: CancellationToken,
    tls: Option<TlsConfig>,
}

impl ConnectionServer {
    async fn accept_tcp(self, listener: TcpListener, app: Router) {
        while let Some(accepted) = self.stopping.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => {
                    // Without TCP_NODELAY the small frames of a stream wait for acknowledgements.
                    let _ = stream.set_nodelay(true);
                    self.connections.spawn(self.clone().serve_tcp(stream, app.clone()));
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    async fn serve_tcp(self, stream: TcpStream, app: Router) {
        let Some(tls) = self.tls.clone() else { return self.serve_connection(stream, app).await };
        let handshake = self.stopping.run_until_cancelled(tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)));
        match handshake.await {
            Some(Ok(Ok(stream))) => self.serve_connection(stream, app).await,
            Some(Ok(Err(error))) => tracing::debug!(%error, "TLS handshake failed"),
            Some(Err(_)) | None => {}
        }
    }

    async fn accept_unix(self, listener: UnixListener, app: Router) {
        let own = rustix::process::geteuid().as_raw();
        while let Some(accepted) = self.stopping.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => match stream.peer_cred() {
                    Ok(peer) if peer.uid() == own => {
                        self.connections.spawn(self.clone().serve_connection(stream, app.clone()));
                    }
                    // The mode of the socket does not stop root or a process that was passed a descriptor.
                    _ => tracing::warn!("refused a connection of another user"),
                },
                Err(error) => pause(&error).await,
            }
        }
    }

    async fn serve_connection(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, app: Router) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)).with_upgrades();
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection failed");
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
    fn listening_address_is_a_host_name() {
        let name = |address: &str| host_name(&address.parse().unwrap());
        assert_eq!(name("127.0.0.2:80").as_deref(), Some("127.0.0.2"));
        assert_eq!(name("[2001:db8::7]:80").as_deref(), Some("[2001:db8::7]"));
        assert_eq!((name("0.0.0.0:80"), name("[::]:80")), (None, None));
    }
}
