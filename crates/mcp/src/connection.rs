//! The sandbox of one MCP connection.
//!
//! It starts with the first call that needs it. Concurrent first calls share it. Protocol versions without connections
//! have detached sandboxes instead, which calls name by session.

use std::sync::{Arc, Mutex, OnceLock};

use base::lock;
use tokio::sync::OnceCell;

use crate::failure::ToolFailure;
use crate::host::{Caller, McpHost};
use crate::sandbox_handle::SandboxHandle;

/// A connection; its sandbox ends with it.
#[derive(Default)]
pub(crate) struct Connection {
    /// The token of the first call; later calls must have the same.
    owner: OnceLock<Option<String>>,
    current: Mutex<Arc<OnceCell<SandboxHandle>>>,
}

impl Connection {
    /// Returns whether a caller with this token may use the connection. The first caller owns it.
    pub(crate) fn belongs_to(&self, token: Option<&str>) -> bool {
        self.owner.get_or_init(|| token.map(str::to_owned)).as_deref() == token
    }

    /// Returns the sandbox that a call uses: the one that it names, else the connection's, else a new one.
    pub(crate) async fn sandbox(
        &self,
        host: &McpHost,
        caller: &Caller,
        named: Option<&str>,
    ) -> Result<SandboxHandle, ToolFailure> {
        let current = self.current();
        if let Some(named) = named {
            let own = current.get().filter(|sandbox| sandbox.id().as_str() == named && !sandbox.is_closed()).cloned();
            return own.or_else(|| host.find_detached(caller, named)).ok_or_else(|| {
                let what = format!("no sandbox with the session {named:?} runs for this client");
                ToolFailure::invalid(what, "call without `session`: `run` starts a new sandbox")
            });
        }
        if caller.is_detached {
            let sandbox = host.open(caller, None).await?;
            host.keep_detached(caller, &sandbox);
            return Ok(sandbox);
        }
        Ok(current.get_or_try_init(|| host.open(caller, None)).await?.clone())
    }

    /// Gives up the sandbox, so that the next call starts a new one. It ends when its calls have ended.
    pub(crate) fn release(&self) {
        drop(std::mem::take(&mut *lock(&self.current)));
    }

    fn current(&self) -> Arc<OnceCell<SandboxHandle>> {
        let mut current = lock(&self.current);
        if current.get().is_some_and(SandboxHandle::is_closed) {
            *current = Arc::default();
        }
        current.clone()
    }
}
