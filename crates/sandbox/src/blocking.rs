//! The choice of the thread for blocking work: a blocking thread of the runtime, or the calling thread.

use jail::{Spawner, SpawnerMode};

use crate::SandboxError;

/// Runs blocking work in a way that suits the spawner of a backend. Chosen once, when the backend is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockingRunner {
    /// On a blocking thread of the runtime, so that other tasks continue meanwhile.
    BlockingThread,
    /// On the calling thread. A spawner in this process clones the sandbox here, and a clone needs a single thread.
    CallingThread,
}

impl BlockingRunner {
    /// Returns the runner for sandboxes that `spawner` makes.
    pub(crate) fn for_spawner(spawner: &Spawner) -> Self {
        match spawner.mode() {
            SpawnerMode::SeparateProcess => Self::BlockingThread,
            SpawnerMode::HostProcess => Self::CallingThread,
        }
    }

    /// Runs `work` and returns its result. Fails with [`SandboxError::Gone`] when the runtime shuts down meanwhile.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SandboxError> {
        match self {
            Self::BlockingThread => tokio::task::spawn_blocking(work).await.map_err(|_| SandboxError::Gone),
            Self::CallingThread => Ok(work()),
        }
    }
}
