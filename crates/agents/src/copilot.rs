//! GitHub Copilot CLI with a custom model provider, over the Agent Client Protocol.

use base::HOME;

use crate::acp::{AcpDialogue, AcpQuirks, ProgramNotice};
use crate::launch::environment;
use crate::{Agent, AgentError, Dialogue, LaunchContext, LaunchPlan, NpmPackage, PermissionMode, SavedHome};

const PACKAGE: NpmPackage = NpmPackage {
    npm: "@github/copilot",
    version: "1.0.102",
    integrity: "sha512-mv6cTWMhMILxg5ZDgqJ6UsnpPuySCPWOPbZVaO8lL0dpmjY3VD9ZhJr6DFcG7fhUXZv6OmvLdcRCa5MJ6hBI+Q==",
    program: "@github/copilot-linux-x64/copilot",
    needs_node: false,
};

/// The default model. A custom provider has none.
const DEFAULT_MODEL: &str = "claude-sonnet-4";

const MODES: &[PermissionMode] =
    &[PermissionMode::Default, PermissionMode::Plan, PermissionMode::AcceptEdits, PermissionMode::Bypass];

/// Copilot's name for plan mode.
const PLAN: &str = "https://agentclientprotocol.com/protocol/session-modes#plan";

/// The agent `copilot`.
#[derive(Debug, Clone, Copy)]
pub struct CopilotAgent;

impl Agent for CopilotAgent {
    fn id(&self) -> &'static str {
        "copilot"
    }

    fn package(&self) -> Option<&'static NpmPackage> {
        Some(&PACKAGE)
    }

    fn skill_root(&self) -> Option<&'static str> {
        Some("/home/agent/.copilot/skills")
    }

    fn takes_mcp(&self) -> bool {
        true
    }

    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError> {
        PermissionMode::select(context.permission_mode.as_deref(), self.id(), MODES)?;
        let servers = context.mcp.for_copilot();
        let mut arguments = vec!["--acp", "--disable-builtin-mcps"];
        arguments.extend(servers.iter().flat_map(|servers| ["--additional-mcp-config", servers]));
        let env = environment(&[
            ("COPILOT_PROVIDER_BASE_URL", Some(&context.gateway_url)),
            ("COPILOT_PROVIDER_TYPE", Some("anthropic")),
            ("COPILOT_PROVIDER_API_KEY", Some(&context.token)),
            ("COPILOT_MODEL", context.model.as_deref().or(Some(DEFAULT_MODEL))),
            ("COPILOT_OFFLINE", Some("true")),
            ("COPILOT_AUTO_UPDATE", Some("false")),
            ("COPILOT_HOME", Some(&format!("{HOME}/.copilot"))),
            ("XDG_CACHE_HOME", Some(&format!("{HOME}/.cache"))),
        ]);
        PACKAGE.plan(self.id(), context, &arguments, env, SavedHome::of(&[".copilot"]))
    }

    fn new_dialogue(&self, context: &LaunchContext) -> Box<dyn Dialogue> {
        let quirks =
            AcpQuirks { plan_mode: Some(PLAN), notice: Some(notice), announces_files: true, ..AcpQuirks::default() };
        Box::new(AcpDialogue::new(context, quirks))
    }
}

/// Recognizes messages of the program. Copilot ends a failed turn normally and reports the failure as a message of the
/// model.
fn notice(words: &str) -> Option<ProgramNotice> {
    if words == "Info: Request failed due to a transient API error. Retrying..." {
        return Some(ProgramNotice::Retrying);
    }
    if words.starts_with("Warning: No token count multiplier is known") {
        return Some(ProgramNotice::Status("Warning"));
    }
    let error = words.strip_prefix("Error: ")?;
    let status = error.split(' ').next().is_some_and(|word| word.len() == 3 && word.parse::<u16>().is_ok());
    let known = [
        "Authentication failed with provider",
        "Failed to get response from the AI model",
        "No response was returned. Send your message again",
    ];
    (status || known.iter().any(|known| error.starts_with(known))).then_some(ProgramNotice::Error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_the_program_are_notices() {
        for (words, expected) in [
            ("Error: 400 no", Some(ProgramNotice::Error)),
            ("Error: Authentication failed with provider at http://x (HTTP 401).", Some(ProgramNotice::Error)),
            ("Error: Failed to get response from the AI model; retried 5 times", Some(ProgramNotice::Error)),
            ("Error: No response was returned. Send your message again to retry.", Some(ProgramNotice::Error)),
            ("Info: Request failed due to a transient API error. Retrying...", Some(ProgramNotice::Retrying)),
            ("Warning: No token count multiplier is known for Anthropic model", Some(ProgramNotice::Status("Warning"))),
            ("Error: your function returns too early", None),
            ("Error: 4000 lines", None),
            ("Info: /workspace/a.txt", None),
        ] {
            assert_eq!(notice(words), expected, "{words}");
        }
    }
}
