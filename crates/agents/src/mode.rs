//! How much an agent may do before it asks.

use crate::{AgentError, LaunchContext};

/// What an agent is told when it would change something before its plan was approved.
pub(crate) const NOT_WHILE_PLANNING: &str = "nothing is changed in plan mode";

/// The permission modes of the session API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PermissionMode {
    /// Asks before it acts.
    #[default]
    Default,
    /// Looks and plans, changes nothing.
    Plan,
    /// Edits files without asking, asks for the rest.
    AcceptEdits,
    /// Never asks.
    Bypass,
}

impl PermissionMode {
    /// As it stands in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Plan => "plan",
            Self::AcceptEdits => "acceptEdits",
            Self::Bypass => "bypass",
        }
    }

    /// Reads a mode as it stands in the API.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Default, Self::Plan, Self::AcceptEdits, Self::Bypass].into_iter().find(|mode| mode.as_str() == text)
    }

    /// The mode of a session that was let through.
    pub(crate) fn of(context: &LaunchContext) -> Self {
        context.permission_mode.as_deref().and_then(Self::parse).unwrap_or_default()
    }

    /// The mode asked for, if `agent` can keep it; none asked for means the first that it keeps.
    pub(crate) fn select(asked: Option<&str>, agent: &'static str, keeps: &[Self]) -> Result<Self, AgentError> {
        let Some(asked) = asked else { return Ok(keeps.first().copied().unwrap_or_default()) };
        Self::parse(asked)
            .filter(|mode| keeps.contains(mode))
            .ok_or_else(|| AgentError::ModeNotSupported { agent, mode: asked.to_owned() })
    }
}
