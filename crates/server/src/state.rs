//! What every handler can reach.

use std::sync::{Arc, OnceLock};

use session::Sessions;
use tokio_util::sync::CancellationToken;

use crate::audit::AuditLog;
use crate::config::ServerConfig;

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
