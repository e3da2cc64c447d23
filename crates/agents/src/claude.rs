//! Claude Code: one process with its stdio control protocol.

use base::HOME;
use serde_json::{Value, json};

use crate::control::{ControlDialogue, ControlVariant};
use crate::launch::environment;
use crate::{Agent, AgentError, Dialogue, LaunchContext, LaunchPlan, NpmPackage, PermissionMode, Prompt, SavedHome};

const PACKAGE: NpmPackage = NpmPackage {
    npm: "@anthropic-ai/claude-code",
    version: "2.1.325",
    integrity: "sha512-OUxCb0sx734zJh9zGTP9oF01gZ44DCGFaw7hgD4byepjRRGyvHzgUOwC7dlCgVIljV6CiEVDjq+anY3GUvKFQw==",
    // The native binary. The package's `bin` is a placeholder unless install scripts run.
    program: "@anthropic-ai/claude-code-linux-x64/claude",
    needs_node: false,
};

const MODES: &[PermissionMode] =
    &[PermissionMode::Default, PermissionMode::Plan, PermissionMode::AcceptEdits, PermissionMode::Bypass];

/// The agent `claude`.
#[derive(Debug, Clone, Copy)]
pub struct ClaudeAgent;

impl Agent for ClaudeAgent {
    fn id(&self) -> &'static str {
        "claude"
    }

    fn package(&self) -> Option<&'static NpmPackage> {
        Some(&PACKAGE)
    }

    fn skill_root(&self) -> Option<&'static str> {
        Some("/home/agent/.claude/skills")
    }

    fn takes_mcp(&self) -> bool {
        true
    }

    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError> {
        let mode = PermissionMode::select(context.permission_mode.as_deref(), self.id(), MODES)?;
        let mut arguments = vec!["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"];
        arguments.extend(["--include-partial-messages", "--permission-prompt-tool", "stdio"]);
        arguments.extend(["--permission-mode", native_mode(mode)]);
        if mode == PermissionMode::Plan {
            // Claude Code's classifier denies every command when its model address is not the vendor's own.
            arguments.extend(["--settings", r#"{"useAutoModeDuringPlan":false}"#]);
        }
        if let Some(model) = &context.model {
            arguments.extend(["--model", model]);
        }
        if let Some(session) = &context.native_session_id {
            arguments.extend(["--resume", session]);
        }
        // Only the servers of this session; servers that a repository or home configures are ignored.
        let servers = context.mcp.to_standard();
        arguments.extend(servers.iter().flat_map(|servers| ["--mcp-config", servers]));
        arguments.push("--strict-mcp-config");
        let env = environment(&[
            ("ANTHROPIC_BASE_URL", Some(&context.gateway_url)),
            ("ANTHROPIC_AUTH_TOKEN", Some(&context.token)),
            ("ANTHROPIC_MODEL", context.model.as_deref()),
            ("CLAUDE_CONFIG_DIR", Some(&format!("{HOME}/.claude"))),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", Some("1")),
            ("DISABLE_AUTOUPDATER", Some("1")),
            // The model reports its whole to-do list in one call instead of one call for each step.
            ("CLAUDE_CODE_ENABLE_TASKS", Some("false")),
            // Otherwise servers connect during the first turn, which may end before their tools are available.
            ("MCP_CONNECTION_NONBLOCKING", Some("false")),
            // Otherwise a sub-agent runs in the background and answers in a later turn that nobody requested.
            ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", Some("1")),
            // Otherwise root cannot use bypass mode. Here the process is in a sandbox.
            ("IS_SANDBOX", Some("1")),
        ]);
        PACKAGE.plan(self.id(), context, &arguments, env, SavedHome::of(&[".claude"]))
    }

    fn new_dialogue(&self, context: &LaunchContext) -> Box<dyn Dialogue> {
        Box::new(ControlDialogue::new(
            context,
            ControlVariant { error_prefix: None, prompt, answer_key: |text, _| text.to_owned() },
        ))
    }
}

fn prompt(prompt: &Prompt, _: Option<&str>) -> Value {
    let mut content = vec![json!({ "type": "text", "text": prompt.with_attachments_named() })];
    content.extend(prompt.images.iter().map(|picture| {
        let source = json!({ "type": "base64", "media_type": picture.mime, "data": picture.data });
        json!({ "type": "image", "source": source })
    }));
    json!({ "type": "user", "message": { "role": "user", "content": content } })
}

fn native_mode(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Bypass => "bypassPermissions",
        other => other.as_str(),
    }
}
