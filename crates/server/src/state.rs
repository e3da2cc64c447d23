//! What every handler can reach.

use std::sync::Arc;

use session::Sessions;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfig;

/// What every handler can reach.
#[derive(Clone)]
pub(crate) struct AppState {
    pub(crate) sessions: Sessions,
    pub(crate) config: Arc<ServerConfig>,
    /// Ends every stream.
    pub(crate) stopping: CancellationToken,
}
