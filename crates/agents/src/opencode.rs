//! `OpenCode`, over the Agent Client Protocol.

use base::HOME;
use serde_json::json;

use crate::acp::{AcpDialogue, AcpQuirks};
use crate::launch::environment;
use crate::{Agent, AgentError, Dialogue, LaunchContext, LaunchPlan, NpmPackage, PermissionMode, SavedHome};

const PACKAGE: NpmPackage = NpmPackage {
    npm: "opencode-ai",
    version: "1.18.33",
    integrity: "sha512-58P1ffLRXiAY4QeoABqUjqf6DEzm1ihpovvn9Ad+oOLbLiwK/rf88wruT9IATJ7AtNjmi8iA7pC8tN4o5y799Q==",
    program: "opencode-linux-x64-baseline/bin/opencode",
    needs_node: false,
};

const MODES: &[PermissionMode] =
    &[PermissionMode::Default, PermissionMode::Plan, PermissionMode::AcceptEdits, PermissionMode::Bypass];

/// The default model. `OpenCode` requires a name.
const DEFAULT_MODEL: &str = "default";

/// The agent `opencode`.
#[derive(Debug, Clone, Copy)]
pub struct OpencodeAgent;

impl Agent for OpencodeAgent {
    fn id(&self) -> &'static str {
        "opencode"
    }

    fn package(&self) -> Option<&'static NpmPackage> {
        Some(&PACKAGE)
    }

    fn skill_root(&self) -> Option<&'static str> {
        Some("/home/agent/.local/config/opencode/skills")
    }

    fn takes_mcp(&self) -> bool {
        true
    }

    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError> {
        let mode = PermissionMode::select(context.permission_mode.as_deref(), self.id(), MODES)?;
        let folder = |name: &str| format!("{HOME}/.local/{name}");
        let env = environment(&[
            ("OPENCODE_CONFIG_CONTENT", Some(&configuration(context))),
            ("OPENCODE_PERMISSION", Some(&permissions(mode, context))),
            ("OPENCODE_DISABLE_AUTOUPDATE", Some("1")),
            ("OPENCODE_DISABLE_MODELS_FETCH", Some("1")),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", Some("1")),
            ("XDG_DATA_HOME", Some(&folder("share"))),
            ("XDG_CONFIG_HOME", Some(&folder("config"))),
            ("XDG_STATE_HOME", Some(&folder("state"))),
            ("XDG_CACHE_HOME", Some(&folder("cache"))),
        ]);
        PACKAGE.plan(self.id(), context, &["acp"], env, SavedHome::of(&[".local/share", ".local/state"]))
    }

    fn new_dialogue(&self, context: &LaunchContext) -> Box<dyn Dialogue> {
        Box::new(AcpDialogue::new(context, AcpQuirks { plan_mode: Some("plan"), ..AcpQuirks::default() }))
    }
}

/// Returns the actions that need a permission; by default `OpenCode` asks for none. In plan mode MCP tools are denied.
fn permissions(mode: PermissionMode, context: &LaunchContext) -> String {
    let mut permissions = json!({ "bash": "ask", "edit": "ask" });
    let served = if mode == PermissionMode::Plan { "deny" } else { "ask" };
    for server in context.mcp.names() {
        permissions[format!("{server}_*")] = json!(served);
    }
    permissions.to_string()
}

/// Returns a configuration with one provider, the gateway, and one model for all purposes.
fn configuration(context: &LaunchContext) -> String {
    let model = context.model.as_deref().unwrap_or(DEFAULT_MODEL);
    let chosen = format!("viv/{model}");
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible",
        "options": { "baseURL": format!("{}/v1", context.gateway_url), "apiKey": context.token },
        // Without this, `OpenCode` does not send images.
        "models": { model: {
            "name": model,
            "attachment": true,
            "modalities": { "input": ["text", "image"], "output": ["text"] },
        } },
    });
    let configuration = json!({
        "autoupdate": false,
        "share": "disabled",
        "model": chosen,
        "small_model": chosen,
        "enabled_providers": ["viv"],
        "mcp": context.mcp.for_opencode(),
        "provider": { "viv": provider },
    });
    configuration.to_string()
}
