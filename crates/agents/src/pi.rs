//! pi in its RPC mode: commands on stdin, events on stdout, one JSON object per line.
//!
//! pi has no permissions and therefore supports only the mode `bypass`.

mod event;

use base::HOME;
use protocol::{PermissionId, PermissionReply, QuestionId};
use serde_json::{Value, json};

use crate::known_fields::PI;
use crate::launch::environment;
use crate::transcript::Transcript;
use crate::{
    Agent, AgentError, Dialogue, DialogueOutput, LaunchContext, LaunchPlan, NpmPackage, PermissionMode, PlacedFile,
    Prompt, PromptImage, SavedHome,
};

const PACKAGE: NpmPackage = NpmPackage {
    npm: "@mariozechner/pi-coding-agent",
    version: "0.73.1",
    integrity: "sha512-gXQh3SaZmWTfVMc4Ao5+LGbVeKvzyO7tolok0nLsZgq9nGjZx/EEU3NM8C+qUnB4Nvs2rswG5qOVgLzQkq0fHQ==",
    program: ".bin/pi",
    needs_node: true,
};

/// The variable with the session token, named in pi's settings.
const TOKEN: &str = "VIV_SESSION_TOKEN";
/// The default model. pi requires a name.
pub(crate) const DEFAULT_MODEL: &str = "default";

/// The agent `pi`.
#[derive(Debug, Clone, Copy)]
pub struct PiAgent;

impl Agent for PiAgent {
    fn id(&self) -> &'static str {
        "pi"
    }

    fn package(&self) -> Option<&'static NpmPackage> {
        Some(&PACKAGE)
    }

    fn skill_root(&self) -> Option<&'static str> {
        Some("/home/agent/.pi/agent/skills")
    }

    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError> {
        PermissionMode::select(context.permission_mode.as_deref(), self.id(), &[PermissionMode::Bypass])?;
        let model = context.model.as_deref().unwrap_or(DEFAULT_MODEL);
        let mut arguments = vec!["--mode", "rpc", "--provider", "viv", "--model", model];
        if let Some(session) = &context.native_session_id {
            arguments.extend(["--session", session]);
        }
        let folder = format!("{HOME}/.pi/agent");
        let files = vec![PlacedFile { path: format!("{folder}/models.json"), content: models(context, model) }];
        let env = environment(&[
            (TOKEN, Some(&context.token)),
            ("PI_CODING_AGENT_DIR", Some(&folder)),
            ("PI_OFFLINE", Some("1")),
            ("PI_SKIP_VERSION_CHECK", Some("1")),
            ("PI_TELEMETRY", Some("0")),
        ]);
        let plan = PACKAGE.plan(self.id(), context, &arguments, env, SavedHome::of(&[".pi"]))?;
        Ok(LaunchPlan { files, ..plan })
    }

    fn new_dialogue(&self, context: &LaunchContext) -> Box<dyn Dialogue> {
        Box::new(PiDialogue { transcript: Transcript::new(context.epoch), ..PiDialogue::default() })
    }
}

fn models(context: &LaunchContext, model: &str) -> String {
    let description = json!({
        "id": model,
        "name": model,
        "reasoning": true,
        "input": ["text", "image"],
        "contextWindow": 200_000,
        "maxTokens": 8192,
        // The gateway computes costs.
        "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0 },
    });
    let provider = json!({
        "baseUrl": context.gateway_url,
        "api": "anthropic-messages",
        "apiKey": TOKEN,
        "models": [description],
    });
    json!({ "providers": { "viv": provider } }).to_string()
}

#[derive(Debug, Default)]
struct PiDialogue {
    transcript: Transcript,
    commands: u64,
    /// Id of a command sent after an error. Its response means that no retry follows.
    retry_probe: Option<String>,
    /// The last error, reported if no retry succeeds.
    error: Option<String>,
}

impl PiDialogue {
    /// Sends a command and returns the id of its response.
    fn command(&mut self, kind: &str, mut command: Value) -> String {
        self.commands += 1;
        let id = self.commands.to_string();
        command["id"] = json!(id);
        command["type"] = json!(kind);
        self.transcript.send(&command);
        id
    }
}

impl Dialogue for PiDialogue {
    fn open(&mut self) -> Vec<DialogueOutput> {
        // The response contains the session id.
        self.command("get_state", json!({}));
        self.transcript.take_outputs()
    }

    fn send_prompt(&mut self, prompt: &Prompt) -> Vec<DialogueOutput> {
        self.error = None;
        let mut command = json!({ "message": prompt.with_attachments_named() });
        if !prompt.images.is_empty() {
            let image =
                |picture: &PromptImage| json!({ "type": "image", "data": picture.data, "mimeType": picture.mime });
            command["images"] = prompt.images.iter().map(image).collect();
        }
        self.command("prompt", command);
        self.transcript.take_outputs()
    }

    fn read_line(&mut self, line: &[u8]) -> Vec<DialogueOutput> {
        if let Some(value) = self.transcript.parse_line(line) {
            self.transcript.record_unknown_fields(&PI, value["type"].as_str().unwrap_or_default(), &value, &value);
            self.handle_message(value);
        }
        self.transcript.take_outputs()
    }

    fn answer_permission(&mut self, _: &PermissionId, _: PermissionReply) -> Vec<DialogueOutput> {
        Vec::new()
    }

    fn answer_question(&mut self, _: &QuestionId, _: Option<&[Vec<String>]>) -> Vec<DialogueOutput> {
        Vec::new()
    }

    fn interrupt(&mut self) -> Vec<DialogueOutput> {
        self.command("abort", json!({}));
        self.transcript.take_outputs()
    }
}
