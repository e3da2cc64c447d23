//! What every handler can reach.

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
use crate::idempotency::InFlight;
use crate::task_registry::Tasks;

/// What every handler can reach. Each call clones it many times: once for every layer around its route.
#[derive(Clone)]
pub(crate) struct AppState(Arc<Parts>);

impl AppState {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for AppState {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// What there is to reach.
pub(crate) struct Parts {
    pub(crate) sessions: Sessions,
    pub(crate) config: ServerConfig,
    /// What describes this API, once all routes are known.
    pub(crate) document: OnceLock<String>,
    /// Who changed what.
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// Named requests that are being done now.
    pub(crate) in_flight: InFlight,
    /// Named requests of all times, once there is one.
    pub(crate) requests: OnceLock<Arc<IdempotencyStore>>,
    /// Tasks that were handed in.
    pub(crate) tasks: Tasks,
    /// Calls that change something, until they are done.
    pub(crate) changing: TaskTracker,
    /// Ends every stream.
    pub(crate) stopping: CancellationToken,
}

impl AppState {
    /// Ends a session, also one that another process of the data directory runs.
    pub(crate) async fn terminate(&self, id: &SessionId) -> Result<(), ApiError> {
        match (self.sessions.terminate(id).await, &self.config.remote_stop) {
            (Err(SessionError::RunElsewhere(_)), Some(elsewhere)) => Ok(elsewhere.0(id.clone()).await?),
            (ended, _) => Ok(ended?),
        }
    }

    /// The named requests of the data directory.
    pub(crate) fn requests(&self) -> Result<Arc<IdempotencyStore>, ApiError> {
        if let Some(requests) = self.requests.get() {
            return Ok(requests.clone());
        }
        let opened = self.sessions.requests();
        let opened = opened.map_err(|error| ApiError::unkept("the named requests cannot be opened", &error))?;
        Ok(self.requests.get_or_init(|| Arc::new(opened)).clone())
    }
}
