//! Sessions that this process runs, and that others of the same user can reach while it does.
//!
//! It answers on the socket of its owner: `viv sessions stop`, `attach` and the server find it there.

use std::sync::Mutex;

use base::lock;
use server::{AuthMode, ServeError, ServerConfig, ServerListeners};
use session::Sessions;
use store::DataDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Sessions of this process, while others can reach them.
pub(crate) struct ServedSessions {
    pub(crate) sessions: Sessions,
    closing: CancellationToken,
    serving: Mutex<Option<JoinHandle<Result<(), ServeError>>>>,
}

impl ServedSessions {
    /// Answers for `sessions` from now on.
    pub(crate) fn open(sessions: Sessions, directory: &DataDir) -> Self {
        let closing = CancellationToken::new();
        let listeners =
            ServerListeners { tcp: Vec::new(), unix: Some(directory.owner_socket(sessions.owner())), tls: None };
        // Nobody comes in by TCP, so no token opens anything.
        let config = ServerConfig::new(AuthMode::Tokens(Vec::new()));
        let shutdown = closing.clone().cancelled_owned();
        let serving = tokio::spawn(server::serve(listeners, config, sessions.clone(), |_| {}, shutdown));
        Self { sessions, closing, serving: Mutex::new(Some(serving)) }
    }

    /// Ends every session of it; whoever asked for that is answered first.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        let serving = lock(&self.serving).take();
        if let Some(serving) = serving
            && let Ok(Err(error)) = serving.await
        {
            tracing::warn!(%error, "this process could not be reached by others");
        }
        // Also where nothing could be served.
        self.sessions.close_all().await;
    }
}
