//! What every handler can reach.

use std::sync::{Arc, OnceLock};

use protocol::SessionId;
use session::{SessionError, Sessions};
use tokio_util::sync::CancellationToken;

use crate::audit::AuditLog;
use crate::config::ServerConfig;
use crate::error::ApiError;

/// What every handler can reach.
#[derive(Clone)]
pub(crate) struct AppState {
    pub(crate) sessions: Sessions,
    pub(crate) config: Arc<ServerConfig>,
    /// What describes this API, once all routes are known.
    pub(crate) document: Arc<OnceLock<String>>,
    /// Who changed what.
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// Ends every stream.
    pub(crate) stopping: CancellationToken,
}

impl AppState {
    /// Ends a session, also one that another process of the data directory runs.
    pub(crate) async fn terminate(&self, id: &SessionId) -> Result<(), ApiError> {
        match (self.sessions.terminate(id).await, &self.config.elsewhere) {
            (Err(SessionError::RunElsewhere(_)), Some(elsewhere)) => Ok(elsewhere.0(id.clone()).await?),
            (ended, _) => Ok(ended?),
        }
    }
}
