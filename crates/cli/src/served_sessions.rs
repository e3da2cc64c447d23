//! Sessions of this process, served on a socket while it runs.
//!
//! `viv sessions stop`, `viv sessions attach` and the server reach the sessions on this socket.

use std::sync::Mutex;

use base::lock;
use server::{AuthMode, ServeError, ServerConfig, ServerListeners};
use session::Sessions;
use store::DataDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Sessions of this process, served on its socket.
pub(crate) struct ServedSessions {
    pub(crate) sessions: Sessions,
    closing: CancellationToken,
    serving: Mutex<JoinSet<Result<(), ServeError>>>,
}

impl ServedSessions {
    /// Serves `sessions` on the socket of this process.
    pub(crate) fn open(sessions: Sessions, directory: &DataDir) -> Self {
        let closing = CancellationToken::new();
        let listeners =
            ServerListeners { tcp: Vec::new(), unix: Some(directory.owner_socket(sessions.owner())), tls: None };
        // There is no TCP listener, so no token is accepted.
        let config = ServerConfig::new(AuthMode::Tokens(Vec::new()));
        let shutdown = closing.clone().cancelled_owned();
        let mut serving = JoinSet::new();
        serving.spawn(server::serve(listeners, config, sessions.clone(), |_| {}, shutdown));
        Self { sessions, closing, serving: Mutex::new(serving) }
    }

    /// Answers pending calls, then ends all sessions.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        let mut serving = std::mem::take(&mut *lock(&self.serving));
        while let Some(served) = serving.join_next().await {
            if let Ok(Err(error)) = served {
                tracing::warn!(%error, "cannot serve the sessions of this process");
            }
        }
        // Needed even if serving failed.
        self.sessions.close_all().await;
    }
}
