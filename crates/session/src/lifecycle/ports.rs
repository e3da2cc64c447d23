//! Ports on which something listens inside a session's sandbox, and connections to them.
//!
//! The host reaches the loopback inside. Nothing inside reaches the host this way, and the ports that lead to the host are
//! not served: a caller must not become the session at its gateway.

use protocol::SessionId;
use sandbox::{InsidePort, SandboxError, is_reserved_port};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::storage::run_blocking;
use crate::{SessionError, Sessions};

/// An open connection to a port inside a sandbox. It counts against the limit of the session until it is dropped.
#[derive(Debug)]
pub struct PortConnection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl PortConnection {
    /// Copies bytes in both directions until both ends are closed. Neither direction buffers more than a few kilobytes: a
    /// side that does not read stops the other one.
    pub async fn relay(mut self, mut other: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
        tokio::io::copy_bidirectional(&mut self.stream, &mut other).await.map(drop)
    }
}

impl Sessions {
    /// Returns the TCP ports on which something listens inside the sandbox of a session. Fails when no sandbox runs, or
    /// the backend cannot tell.
    pub async fn ports(&self, id: &SessionId) -> Result<Vec<InsidePort>, SessionError> {
        let sandbox = self.sandbox(id)?;
        let why = "this sandbox backend cannot list the ports inside";
        run_blocking(move || sandbox.ports().ok_or(SessionError::NotSupported { field: "ports", why })).await
    }

    /// Connects to a port on the loopback inside the sandbox of a session.
    pub async fn connect_port(&self, id: &SessionId, port: u16) -> Result<PortConnection, SessionError> {
        let failed = |kind: std::io::ErrorKind| SandboxError::Connect { port, source: kind.into() };
        if is_reserved_port(port) {
            return Err(failed(std::io::ErrorKind::PermissionDenied).into());
        }
        let sandbox = self.sandbox(id)?;
        let limit = self.host.handle(id).ok_or_else(|| SessionError::NotRunning(id.clone()))?.port_connections.clone();
        let permit = limit.try_acquire_owned().map_err(|_| failed(std::io::ErrorKind::QuotaExceeded))?;
        Ok(PortConnection { stream: sandbox.connect(port).await?, _permit: permit })
    }
}
