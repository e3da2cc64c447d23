//! The launch plan of a session's agent: for its terminal UI or for a dialogue.

use agents::{LaunchPlan, TerminalUiStart, terminal_ui_plan};

use crate::SessionError;
use crate::config::RegisteredAgent;
use crate::lifecycle::SessionPlan;

impl SessionPlan {
    /// Returns the launch plan of the agent: its terminal UI in an interactive session, otherwise a dialogue.
    pub(crate) fn launch_plan(&self, registered: &RegisteredAgent, token: String) -> Result<LaunchPlan, SessionError> {
        let context = self.launch_context(registered, token);
        let Some(terminal) = &self.terminal else { return Ok(registered.agent.plan(&context)?) };
        let first = self.epoch == 1;
        let prompt = terminal.prompt.as_deref().filter(|_| first);
        let start = TerminalUiStart { prompt, resume: !first };
        Ok(terminal_ui_plan(registered.agent, &context, start)?)
    }
}
