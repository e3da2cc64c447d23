//! The status of a session, and the events that report changes of the status and of the labels.
//!
//! Both events are ours: clients of the existing API get them only with `events=all`.
//!
//! Not here: who decides the status (`session`), or how lists filter by it (`store`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The current activity of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// The agent runs and waits for a message.
    Idle,
    /// Messages wait, and no turn runs.
    Queued,
    /// A turn runs.
    Running,
    /// A turn waits for the answer of a person.
    Waiting,
    /// No agent runs; the next message starts it.
    #[default]
    Asleep,
    /// The session has ended.
    Ended,
}

impl SessionStatus {
    /// All values.
    pub const ALL: [Self; 6] = [Self::Idle, Self::Queued, Self::Running, Self::Waiting, Self::Asleep, Self::Ended];

    /// Returns the text in JSON and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Asleep => "asleep",
            Self::Ended => "ended",
        }
    }

    /// Returns the status with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// `session.status`: the session does something else now. Its end is told by `session.ended` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatusChanged {
    /// The new status; its start is the time of the event.
    pub status: SessionStatus,
    /// The status before; absent if it is not known, for example after a crash of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<SessionStatus>,
    /// Why the agent was stopped: `idle_timeout`, `agent_exited`, `host_shut_down` and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `host.draining`: the host stops; the running turn is interrupted if it has not ended in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDraining {
    /// Milliseconds from the event until the turn is interrupted.
    pub drain_ms: u64,
}

/// `session.updated`: a client changed the title, labels or metadata. Absent fields are unchanged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionUpdated {
    /// The new title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// All labels after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The whole metadata after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}
