//! What a server is made of.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use session::Options;

use crate::access::Auth;

/// What a server is made of.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// How callers over TCP show who they are.
    pub auth: Auth,
    /// Names this server answers to, beside those of the loopback.
    pub hosts: Vec<String>,
    /// Origins whose pages may call it, beside its own.
    pub origins: Vec<String>,
    /// Bytes of a message with its attachments.
    pub message_bytes: usize,
    /// How sessions are made.
    pub options: Options,
    /// Time between two signs of life on a silent stream.
    pub heartbeat: Duration,
    /// How long answers in flight may take once the server stops.
    pub drain: Duration,
}

impl ServerConfig {
    /// A server with the usual bounds.
    pub fn new(auth: Auth) -> Self {
        Self {
            auth,
            hosts: Vec::new(),
            origins: Vec::new(),
            message_bytes: 16 << 20,
            options: Options::default(),
            heartbeat: Duration::from_secs(15),
            drain: Duration::from_secs(2),
        }
    }
}

/// Where a server listens.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    /// TCP addresses; without tokens only loopback ones are taken.
    pub tcp: Vec<SocketAddr>,
    /// A unix socket; callers of the same user need no token.
    pub unix: Option<PathBuf>,
}
