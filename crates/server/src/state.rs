//! The shared state of the handlers.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use protocol::SessionId;
use session::{SessionError, Sessions};
use store::IdempotencyStore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::AuditLog;
use crate::config::ServerConfig;
use crate::error::ApiError;
use crate::idempotency::InFlightRequests;
use crate::query_guard::KnownParameters;
use crate::task_registry::TaskRegistry;

/// The shared state of the handlers. Each call clones it once for every layer, so it is one `Arc`.
#[derive(Clone)]
pub(crate) struct AppState(Arc<AppContext>);

impl AppState {
    pub(crate) fn new(parts: AppContext) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for AppState {
    type Target = AppContext;

    fn deref(&self) -> &AppContext {
        &self.0
    }
}

/// The content of [`AppState`].
pub(crate) struct AppContext {
    pub(crate) sessions: Sessions,
    pub(crate) config: ServerConfig,
    /// The OpenAPI document, set once all routes are known.
    pub(crate) document: OnceLock<String>,
    /// The query parameters of each route, set with the document.
    pub(crate) parameters: OnceLock<KnownParameters>,
    /// The audit log.
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// Running requests with an idempotency key.
    pub(crate) in_flight: InFlightRequests,
    /// Stored idempotency keys; opened with the first one.
    pub(crate) requests: OnceLock<Arc<IdempotencyStore>>,
    /// The tasks of the data directory.
    pub(crate) tasks: TaskRegistry,
    /// Owns the running calls that change something.
    pub(crate) running_calls: TaskTracker,
    /// Cancelled to end every stream.
    pub(crate) stopping: CancellationToken,
}

impl AppState {
    /// Ends a session, also one that another process of the data directory runs.
    pub(crate) async fn terminate(&self, id: &SessionId) -> Result<(), ApiError> {
        match (self.sessions.terminate(id).await, &self.config.remote_stop) {
            (Err(SessionError::RunByAnotherProcess(_)), Some(elsewhere)) => Ok(elsewhere.0(id.clone()).await?),
            (ended, _) => Ok(ended?),
        }
    }

    /// Returns the store of idempotency keys, and opens it if needed.
    pub(crate) fn requests(&self) -> Result<Arc<IdempotencyStore>, ApiError> {
        if let Some(requests) = self.requests.get() {
            return Ok(requests.clone());
        }
        let opened = self.sessions.idempotency_store();
        let opened = opened.map_err(|error| ApiError::storage("cannot open the store of idempotency keys", &error))?;
        Ok(self.requests.get_or_init(|| Arc::new(opened)).clone())
    }
}
