//! The state that all MCP connections of a process share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::lock;
use policy::EffectivePolicy;
use protocol::{CreateSession, SessionId};
use session::{SessionOptions, Sessions};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::failure::ToolFailure;
use crate::sandbox_handle::SandboxHandle;

/// How long a sandbox without a connection waits for its next call.
const IDLE: Duration = Duration::from_secs(600);
/// Characters of a client's name in a session's title.
const NAME_LENGTH: usize = 60;

/// Settings of an MCP host.
#[derive(Clone)]
pub struct McpSettings {
    /// The sessions of the data directory.
    pub sessions: Sessions,
    /// The options of sessions that the user of this process starts.
    pub options: SessionOptions,
    /// The workspace of the host for callers that name none; an empty one without it.
    pub workspace: Option<PathBuf>,
}

/// The MCP connections of a process with their sandboxes.
#[derive(Clone)]
pub struct McpHost(Arc<Shared>);

struct Shared {
    settings: McpSettings,
    tasks: TaskTracker,
    closing: CancellationToken,
    /// Sandboxes of calls without a connection, with the caller that may use them.
    detached: Mutex<HashMap<SessionId, (Option<String>, SandboxHandle)>>,
}

/// The caller of a tool, with its rights.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) options: SessionOptions,
    pub(crate) workspace: Option<PathBuf>,
    /// The name of the client program.
    pub(crate) client: String,
    /// Whether calls come without a connection, so that they name their sandbox.
    pub(crate) is_detached: bool,
}

impl McpHost {
    /// Returns a host without connections.
    pub fn new(settings: McpSettings) -> Self {
        let (tasks, closing) = (TaskTracker::new(), CancellationToken::new());
        Self(Arc::new(Shared { settings, tasks, closing, detached: Mutex::default() }))
    }

    /// Ends every sandbox. Returns when all have ended and their changes are saved.
    pub async fn close(&self) {
        self.0.closing.cancel();
        lock(&self.0.detached).clear();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    pub(crate) fn settings(&self) -> &McpSettings {
        &self.0.settings
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    /// Returns the policy of a new sandbox for `caller`.
    pub(crate) fn policy(&self, caller: &Caller) -> Result<Arc<EffectivePolicy>, ToolFailure> {
        match &caller.options.policy {
            Some(policy) => Ok(policy.clone()),
            None => Ok(self.0.settings.sessions.policy_in(caller.workspace.as_deref())?),
        }
    }

    /// Starts a sandbox for `caller`, with `policy` or the caller's own.
    pub(crate) async fn open(
        &self,
        caller: &Caller,
        policy: Option<Arc<EffectivePolicy>>,
    ) -> Result<SandboxHandle, ToolFailure> {
        let id = SessionId::new(Uuid::now_v7().to_string())
            .map_err(|error| ToolFailure::invalid(error.to_string(), "call `run` again"))?;
        let name: String = caller.client.chars().take(NAME_LENGTH).collect();
        let request = CreateSession {
            directory: caller.workspace.as_ref().map(|path| path.to_string_lossy().into_owned()),
            title: Some(format!("MCP: {name}")),
            ..CreateSession::default()
        };
        let mut options = caller.options.clone();
        options.policy = policy.or(options.policy);
        let session = self.0.settings.sessions.open_command_session(id, request, options).await?;
        let idle = caller.is_detached.then_some(IDLE);
        Ok(SandboxHandle::start(session, &self.0.tasks, self.0.closing.child_token(), idle))
    }

    /// Keeps a sandbox that later calls of `caller` can name.
    pub(crate) fn keep_detached(&self, caller: &Caller, sandbox: &SandboxHandle) {
        let mut detached = lock(&self.0.detached);
        detached.retain(|_, (_, sandbox)| !sandbox.is_closed());
        detached.insert(sandbox.id().clone(), (caller.options.token.clone(), sandbox.clone()));
    }

    /// Returns the kept sandbox `id` of `caller`. Another caller's sandbox counts as unknown.
    pub(crate) fn find_detached(&self, caller: &Caller, id: &str) -> Option<SandboxHandle> {
        let detached = lock(&self.0.detached);
        let (_, (owner, sandbox)) = detached.iter().find(|(known, _)| known.as_str() == id)?;
        (*owner == caller.options.token && !sandbox.is_closed()).then(|| sandbox.clone())
    }

    /// Removes a kept sandbox.
    pub(crate) fn remove_detached(&self, id: &SessionId) {
        lock(&self.0.detached).remove(id);
    }
}
