//! GitHub Copilot CLI with a provider of one's own, over the Agent Client Protocol.

use crate::acp::{AcpDialogue, Quirks};
use crate::launch::{HOME, WORKSPACE, environment};
use crate::{Agent, AgentError, Dialogue, LaunchContext, LaunchPlan, Package, PermissionMode};

const PACKAGE: Package = Package {
    npm: "@github/copilot",
    version: "1.0.102",
    program: "@github/copilot-linux-x64/copilot",
    needs_node: false,
};

const MODES: &[PermissionMode] = &[PermissionMode::Default, PermissionMode::AcceptEdits, PermissionMode::Bypass];

/// The agent `copilot`.
#[derive(Debug, Clone, Copy)]
pub struct CopilotAgent;

impl Agent for CopilotAgent {
    fn id(&self) -> &'static str {
        "copilot"
    }

    fn package(&self) -> Option<&'static Package> {
        Some(&PACKAGE)
    }

    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError> {
        PermissionMode::choose(context.permission_mode.as_deref(), self.id(), MODES)?;
        let (argv, mounts) = PACKAGE.start(self.id(), context, &["--acp"])?;
        let env = environment(&[
            ("COPILOT_PROVIDER_BASE_URL", Some(&context.gateway_url)),
            ("COPILOT_PROVIDER_TYPE", Some("anthropic")),
            ("COPILOT_PROVIDER_API_KEY", Some(&context.token)),
            ("COPILOT_MODEL", context.model.as_deref()),
            ("COPILOT_OFFLINE", Some("true")),
            ("COPILOT_AUTO_UPDATE", Some("false")),
            ("COPILOT_HOME", Some(&format!("{HOME}/.copilot"))),
            ("XDG_CACHE_HOME", Some(&format!("{HOME}/.cache"))),
        ]);
        Ok(LaunchPlan { argv, env, files: Vec::new(), mounts, workdir: WORKSPACE.to_owned() })
    }

    fn native(&self, context: &LaunchContext) -> Box<dyn Dialogue> {
        Box::new(AcpDialogue::new(context, Quirks { errors_are_messages: true, ..Quirks::default() }))
    }
}
