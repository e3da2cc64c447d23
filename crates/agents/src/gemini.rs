//! Gemini CLI, over the Agent Client Protocol.

use base::HOME;
use serde_json::json;

use crate::acp::{AcpDialogue, AcpQuirks, ProgramNotice};
use crate::launch::environment;
use crate::{
    Agent, AgentError, Dialogue, LaunchContext, LaunchPlan, NpmPackage, PermissionMode, PlacedFile, SavedHome,
};

const PACKAGE: NpmPackage = NpmPackage {
    npm: "@google/gemini-cli",
    version: "0.61.0",
    integrity: "sha512-dbQ9A0qBtFJNi6XBkHvfZ6Azpn6PNgH/P8h2MZ67RLlX8hSAVjup39CRWqdRxZv7YXIuhrFaytr8y0jKnkoxnQ==",
    program: ".bin/gemini",
    needs_node: true,
};

/// The default model. Without a name, Gemini calls a small model in every turn to choose a model.
const DEFAULT_MODEL: &str = "gemini-2.5-pro";

const MODES: &[PermissionMode] =
    &[PermissionMode::Default, PermissionMode::Plan, PermissionMode::AcceptEdits, PermissionMode::Bypass];

/// Gemini names a session file by the minute of its start. The file is renamed, because resuming in the same minute
/// would overwrite it.
const SAVED_HOME: SavedHome =
    SavedHome { folders: &[".gemini"], rename: Some("s#/chats/session-[-0-9T]*-#/chats/session-1970-01-01T00-00-#") };

/// The agent `gemini`.
#[derive(Debug, Clone, Copy)]
pub struct GeminiAgent;

impl Agent for GeminiAgent {
    fn id(&self) -> &'static str {
        "gemini"
    }

    fn package(&self) -> Option<&'static NpmPackage> {
        Some(&PACKAGE)
    }

    fn skill_root(&self) -> Option<&'static str> {
        Some("/home/agent/.gemini/skills")
    }

    fn takes_mcp(&self) -> bool {
        true
    }

    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError> {
        PermissionMode::select(context.permission_mode.as_deref(), self.id(), MODES)?;
        let model = context.model.as_deref().unwrap_or(DEFAULT_MODEL);
        let env = environment(&[
            ("GEMINI_API_KEY", Some(&context.token)),
            ("GOOGLE_GEMINI_BASE_URL", Some(&context.gateway_url)),
            // Otherwise Gemini restarts itself, and a signal reaches only the first process.
            ("GEMINI_CLI_NO_RELAUNCH", Some("true")),
            ("GEMINI_CLI_TRUST_WORKSPACE", Some("true")),
        ]);
        // Gemini does not start with a base URL alone: its settings must select the kind of key.
        let settings = json!({
            "security": { "auth": { "selectedType": "gemini-api-key" } },
            "privacy": { "usageStatisticsEnabled": false },
            "general": { "enableAutoUpdate": false },
            "mcpServers": context.mcp.for_gemini(),
        });
        let path = format!("{HOME}/.gemini/settings.json");
        let files = vec![PlacedFile { path, content: settings.to_string() }];
        let plan = PACKAGE.plan(self.id(), context, &["--acp", "-m", model], env, SAVED_HOME)?;
        Ok(LaunchPlan { files, ..plan })
    }

    fn new_dialogue(&self, context: &LaunchContext) -> Box<dyn Dialogue> {
        let quirks = AcpQuirks {
            plan_mode: Some("plan"),
            notice: Some(notice),
            replays_after_load: true,
            ..AcpQuirks::default()
        };
        Box::new(AcpDialogue::new(context, quirks))
    }
}

/// Recognizes a change of mode, which Gemini reports as a message of the model.
fn notice(words: &str) -> Option<ProgramNotice> {
    words.starts_with("[MODE_UPDATE] ").then_some(ProgramNotice::Status("Mode"))
}
