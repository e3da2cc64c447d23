//! Qwen Code: the control protocol of Claude Code, with models over the `OpenAI` API.

use base::HOME;
use serde_json::{Value, json};

use crate::control::{ControlDialogue, ControlVariant};
use crate::launch::environment;
use crate::{
    Agent, AgentError, Dialogue, LaunchContext, LaunchPlan, NpmPackage, PermissionMode, PlacedFile, Prompt, SavedHome,
};

const PACKAGE: NpmPackage = NpmPackage {
    npm: "@qwen-code/qwen-code",
    version: "0.24.4",
    integrity: "sha512-pmexy/Nj+BKd3Un1ogqGQE8V4GJn5B6N9PQOrU1GH+lMR29kn6Bgf6YdbZa8hNIoTmAKT1LTPK+P8TibZRPPVg==",
    program: ".bin/qwen",
    needs_node: true,
};

/// The default model. Qwen requires a name.
const DEFAULT_MODEL: &str = "qwen3-coder-plus";

const MODES: &[PermissionMode] =
    &[PermissionMode::Default, PermissionMode::Plan, PermissionMode::AcceptEdits, PermissionMode::Bypass];

/// The agent `qwen`.
#[derive(Debug, Clone, Copy)]
pub struct QwenAgent;

impl Agent for QwenAgent {
    fn id(&self) -> &'static str {
        "qwen"
    }

    fn package(&self) -> Option<&'static NpmPackage> {
        Some(&PACKAGE)
    }

    fn skill_root(&self) -> Option<&'static str> {
        Some("/home/agent/.qwen/skills")
    }

    fn takes_mcp(&self) -> bool {
        true
    }

    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError> {
        let mode = PermissionMode::select(context.permission_mode.as_deref(), self.id(), MODES)?;
        let mut arguments = vec!["--input-format", "stream-json", "-o", "stream-json"];
        arguments.extend(["--include-partial-messages", "--approval-mode", native_mode(mode)]);
        if let Some(session) = &context.native_session_id {
            arguments.extend(["--resume", session]);
        }
        let servers = context.mcp.to_standard();
        arguments.extend(servers.iter().flat_map(|servers| ["--mcp-config", servers]));
        let env = environment(&[
            ("OPENAI_BASE_URL", Some(&format!("{}/v1", context.gateway_url))),
            ("OPENAI_API_KEY", Some(&context.token)),
            ("OPENAI_MODEL", context.model.as_deref().or(Some(DEFAULT_MODEL))),
            // An environment variable, because workspace settings take precedence over settings of the home.
            ("QWEN_USAGE_STATISTICS_ENABLED", Some("false")),
        ]);
        let path = format!("{HOME}/.qwen/settings.json");
        let files = vec![PlacedFile { path, content: settings().to_string() }];
        let plan = PACKAGE.plan(self.id(), context, &arguments, env, SavedHome::of(&[".qwen"]))?;
        Ok(LaunchPlan { files, ..plan })
    }

    fn new_dialogue(&self, context: &LaunchContext) -> Box<dyn Dialogue> {
        Box::new(ControlDialogue::new(
            context,
            ControlVariant { error_prefix: Some("[API Error: "), prompt, answer_key: |_, place| place.to_string() },
        ))
    }
}

/// Settings are used instead of `--bare`, which leaves only four tools and no questions, skills or new files.
fn settings() -> Value {
    json!({
        "general": { "enableAutoUpdate": false },
        // Required so that the model can report a plan.
        "tools": { "todoWrite": { "enabled": true } },
        // Otherwise every turn makes a second model call for memory.
        "memory": { "enableManagedAutoMemory": false, "enableManagedAutoDream": false },
    })
}

fn prompt(prompt: &Prompt, session: Option<&str>) -> Value {
    // Qwen accepts only text; other content would be shown to the model as JSON.
    let text = prompt.with_attachments_named();
    let message = json!({ "role": "user", "content": text });
    // Qwen requires a session id here and accepts any.
    json!({ "type": "user", "session_id": session.unwrap_or("new"), "message": message, "parent_tool_use_id": null })
}

fn native_mode(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Default => "default",
        PermissionMode::Plan => "plan",
        PermissionMode::AcceptEdits => "auto-edit",
        PermissionMode::Bypass => "yolo",
    }
}
