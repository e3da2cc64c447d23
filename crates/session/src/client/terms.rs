//! On which terms an agent works: what a goal and a conversation have in common.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Event, SessionId};
use serde_json::Value;

/// What is answered when the agent asks for a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PermissionResponder {
    /// No; questions are rejected too.
    #[default]
    Deny,
    /// Yes, each time; questions get the first answer they offer.
    Allow,
    /// Nothing: whoever reads the events answers with [`crate::Conversation::reply_permission`].
    Manual,
}

/// Hears every event as it comes.
pub(super) type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// On which terms an agent works.
#[derive(Clone, Default)]
pub(super) struct Terms {
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
    pub(super) listener: Option<Listener>,
}

/// The same setters on everything that has terms.
macro_rules! setters {
    () => {
        /// The id of its session; a new one when nothing is said.
        pub fn session_id(mut self, id: protocol::SessionId) -> Self {
            self.terms.id = Some(id);
            self
        }

        /// The version of the agent, which must be installed; the measured one, else the newest, when nothing is said.
        pub fn agent_version(mut self, version: impl Into<String>) -> Self {
            self.terms.agent_version = Some(version.into());
            self
        }

        /// The directory it works in, absolute; an empty one when there is none. Its changes stay in a layer above
        /// it unless the policy says otherwise.
        pub fn workspace(mut self, directory: impl Into<std::path::PathBuf>) -> Self {
            self.terms.workspace = Some(directory.into());
            self
        }

        /// The model it asks for; its own choice when there is none.
        pub fn model(mut self, model: impl Into<String>) -> Self {
            self.terms.model = Some(model.into());
            self
        }

        /// One of the upstreams of the host by its name; the usual one when nothing is said.
        pub fn upstream(mut self, name: impl Into<String>) -> Self {
            self.terms.upstream = Some(name.into());
            self
        }

        /// `default`, `plan`, `acceptEdits` or `bypass`; a mode that the agent cannot keep is refused.
        pub fn permission_mode(mut self, mode: impl Into<String>) -> Self {
            self.terms.permission_mode = Some(mode.into());
            self
        }

        /// What is answered when it asks; no, when nothing is said.
        pub fn permissions(mut self, permissions: $crate::PermissionResponder) -> Self {
            self.terms.permissions = permissions;
            self
        }

        /// How long a turn may take before it is interrupted.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.terms.timeout = Some(timeout);
            self
        }

        /// The task it belongs to, for the record.
        pub fn task(mut self, name: impl Into<String>) -> Self {
            self.terms.task_name = Some(name.into());
            self
        }

        /// MCP servers of this session alone, by name, as the session API writes them.
        pub fn mcp(mut self, servers: std::collections::BTreeMap<String, serde_json::Value>) -> Self {
            self.terms.mcp = Some(servers);
            self
        }

        /// Skills of this session alone, as the session API writes them: `{"sources": […]}`.
        pub fn skills(mut self, skills: serde_json::Value) -> Self {
            self.terms.skills = Some(skills);
            self
        }

        /// Hears every event as it comes.
        pub fn on_event(mut self, listener: impl Fn(&protocol::Event) + Send + Sync + 'static) -> Self {
            self.terms.listener = Some(std::sync::Arc::new(listener));
            self
        }
    };
}
pub(super) use setters;
