//! Options that goals and conversations have in common.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Event, SessionId};
use serde_json::Value;

/// How permission requests and questions of the agent are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PermissionResponder {
    /// Refuse permissions and reject questions.
    #[default]
    Deny,
    /// Allow each permission once, and answer questions with their first option.
    Allow,
    /// Do not answer: the reader of the events calls [`crate::Conversation::reply_permission`].
    Manual,
}

/// A callback for every event.
pub(super) type EventListener = Arc<dyn Fn(&Event) + Send + Sync>;

/// Options of a goal or conversation.
#[derive(Clone, Default)]
pub(super) struct RunOptions {
    pub(super) id: Option<SessionId>,
    pub(super) agent_version: Option<String>,
    pub(super) workspace: Option<PathBuf>,
    pub(super) model: Option<String>,
    pub(super) upstream: Option<String>,
    pub(super) permission_mode: Option<String>,
    pub(super) permissions: PermissionResponder,
    pub(super) timeout: Option<Duration>,
    pub(super) task_name: Option<String>,
    pub(super) mcp: Option<BTreeMap<String, Value>>,
    pub(super) skills: Option<Value>,
    pub(super) listener: Option<EventListener>,
}

/// Defines the setters of `RunOptions` on a builder with a field `options`.
macro_rules! setters {
    () => {
        /// Sets the id of the session; a new id by default.
        pub fn session_id(mut self, id: protocol::SessionId) -> Self {
            self.options.id = Some(id);
            self
        }

        /// Sets the version of the agent, which must be installed; the tested version, else the newest, by default.
        pub fn agent_version(mut self, version: impl Into<String>) -> Self {
            self.options.agent_version = Some(version.into());
            self
        }

        /// Sets the workspace, an absolute path; an empty directory by default. Changes stay in an overlay, unless the
        /// policy says otherwise.
        pub fn workspace(mut self, directory: impl Into<std::path::PathBuf>) -> Self {
            self.options.workspace = Some(directory.into());
            self
        }

        /// Sets the model; the agent's default if not set.
        pub fn model(mut self, model: impl Into<String>) -> Self {
            self.options.model = Some(model.into());
            self
        }

        /// Selects an upstream of the host by name; the default upstream if not set.
        pub fn upstream(mut self, name: impl Into<String>) -> Self {
            self.options.upstream = Some(name.into());
            self
        }

        /// Sets the permission mode: `default`, `plan`, `acceptEdits` or `bypass`. A mode that the agent does not support
        /// is refused.
        pub fn permission_mode(mut self, mode: impl Into<String>) -> Self {
            self.options.permission_mode = Some(mode.into());
            self
        }

        /// Sets how permission requests are answered; refused by default.
        pub fn permissions(mut self, permissions: $crate::PermissionResponder) -> Self {
            self.options.permissions = permissions;
            self
        }

        /// Sets the time after which a turn is interrupted.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.timeout = Some(timeout);
            self
        }

        /// Sets the name of the task, which is recorded.
        pub fn task(mut self, name: impl Into<String>) -> Self {
            self.options.task_name = Some(name.into());
            self
        }

        /// Adds MCP servers for this session, by name, in the format of the session API.
        pub fn mcp(mut self, servers: std::collections::BTreeMap<String, serde_json::Value>) -> Self {
            self.options.mcp = Some(servers);
            self
        }

        /// Adds skills for this session, in the format of the session API: `{"sources": […]}`.
        pub fn skills(mut self, skills: serde_json::Value) -> Self {
            self.options.skills = Some(skills);
            self
        }

        /// Calls `listener` for every event.
        pub fn on_event(mut self, listener: impl Fn(&protocol::Event) + Send + Sync + 'static) -> Self {
            self.options.listener = Some(std::sync::Arc::new(listener));
            self
        }
    };
}
pub(super) use setters;
