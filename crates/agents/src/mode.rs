//! Permission modes: what an agent may do without asking.

use crate::{AgentError, LaunchContext};

/// The answer to an agent that wants to change something in plan mode.
pub(crate) const NOT_WHILE_PLANNING: &str = "changes are not allowed in plan mode";

/// The permission modes of the session API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PermissionMode {
    /// Asks before each action.
    #[default]
    Default,
    /// Reads and plans, and changes nothing.
    Plan,
    /// Edits files without asking, and asks for everything else.
    AcceptEdits,
    /// Never asks.
    Bypass,
}

impl PermissionMode {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Plan => "plan",
            Self::AcceptEdits => "acceptEdits",
            Self::Bypass => "bypass",
        }
    }

    /// Parses the name in the API.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Default, Self::Plan, Self::AcceptEdits, Self::Bypass].into_iter().find(|mode| mode.as_str() == text)
    }

    /// Returns the mode of a session whose mode was checked before.
    pub(crate) fn of(context: &LaunchContext) -> Self {
        context.permission_mode.as_deref().and_then(Self::parse).unwrap_or_default()
    }

    /// Returns the requested mode, or the first of `supported`. Fails if the agent does not support it.
    pub(crate) fn select(requested: Option<&str>, agent: &'static str, supported: &[Self]) -> Result<Self, AgentError> {
        let Some(requested) = requested else { return Ok(supported.first().copied().unwrap_or_default()) };
        Self::parse(requested)
            .filter(|mode| supported.contains(mode))
            .ok_or_else(|| AgentError::ModeNotSupported { agent, mode: requested.to_owned() })
    }
}
