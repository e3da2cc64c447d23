//! Codex: one `app-server` process with JSON-RPC on stdio.
//!
//! A thread is opened once, and each prompt is a turn of it. The protocol has many messages and grows with each
//! version. Irrelevant messages are listed by name; other unknown messages are recorded.

mod item;
mod notification;
mod server_request;
mod sub_agent;

pub(crate) use item::change as file_change;

use std::collections::{HashMap, VecDeque};

use protocol::{PermissionId, PermissionReply, QuestionId, TurnOutcome};
use serde_json::{Value, json};

use crate::known_fields::CODEX;
use crate::launch::environment;
use crate::transcript::Transcript;
use crate::{
    Agent, AgentError, Dialogue, DialogueOutput, LaunchContext, LaunchPlan, NpmPackage, PermissionMode, Prompt,
    SavedHome,
};

const PACKAGE: NpmPackage = NpmPackage {
    npm: "@openai/codex",
    version: "0.166.0",
    integrity: "sha512-2Szlp1l1cz5TX1ccpX4Zok3DZrot9xeZe0km+6/1v8JmqxADwyJxKBJah4dBymkwtS25j/u6dipJusTOI97Z8Q==",
    program: "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    needs_node: false,
};

const MODES: &[PermissionMode] =
    &[PermissionMode::Default, PermissionMode::Plan, PermissionMode::AcceptEdits, PermissionMode::Bypass];

/// The variable with the session token.
const TOKEN: &str = "VIV_SESSION_TOKEN";

/// The agent `codex`.
#[derive(Debug, Clone, Copy)]
pub struct CodexAgent;

impl Agent for CodexAgent {
    fn id(&self) -> &'static str {
        "codex"
    }

    fn package(&self) -> Option<&'static NpmPackage> {
        Some(&PACKAGE)
    }

    fn skill_root(&self) -> Option<&'static str> {
        Some("/home/agent/.codex/skills")
    }

    fn takes_mcp(&self) -> bool {
        true
    }

    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError> {
        PermissionMode::select(context.permission_mode.as_deref(), self.id(), MODES)?;
        let base_url = format!("model_providers.viv.base_url=\"{}/v1\"", context.gateway_url);
        let token = format!("model_providers.viv.env_key=\"{TOKEN}\"");
        // The agent needs the token; the commands that it runs do not.
        let hide_token = format!("shell_environment_policy.exclude=[\"{TOKEN}\"]");
        let settings = [
            "model_provider=\"viv\"",
            "model_providers.viv.name=\"viv\"",
            &base_url,
            &token,
            "model_providers.viv.wire_api=\"responses\"",
            "analytics.enabled=false",
            // Required so that the model can report a plan.
            "tools.update_plan.enabled=true",
            &hide_token,
        ];
        let servers = context.mcp.for_codex(self.id())?;
        let mut arguments = vec!["app-server"];
        let settings = settings.into_iter().chain(servers.iter().map(String::as_str));
        arguments.extend(settings.flat_map(|setting| ["-c", setting]));
        // Without a network, loading plugins would take five seconds.
        arguments.extend(["--disable", "plugins"]);
        // `CODEX_HOME` is not set: Codex creates its default directory but not one that is given by name.
        let env = environment(&[(TOKEN, Some(&context.token))]);
        PACKAGE.plan(self.id(), context, &arguments, env, SavedHome::of(&[".codex"]))
    }

    fn new_dialogue(&self, context: &LaunchContext) -> Box<dyn Dialogue> {
        let mode = PermissionMode::of(context);
        Box::new(CodexDialogue {
            workdir: context.workdir(),
            transcript: Transcript::new(context.epoch),
            mode,
            model: context.model.clone(),
            resume: context.native_session_id.clone(),
            thread: None,
            turn: None,
            interrupt_pending: false,
            prompts: VecDeque::new(),
            open_error: None,
            requests: HashMap::new(),
            last_request: 0,
            permissions: HashMap::new(),
            questions: HashMap::new(),
            error_reported: false,
            sub_agents: sub_agent::SubAgents::new(),
            interrupt_requested: false,
            pending_outcome: None,
        })
    }
}

/// The kind of a request that waits for a response of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CodexRequest {
    Initialize,
    Thread,
    Turn,
    Interrupt,
    InterruptSubAgent,
}

#[derive(Debug)]
struct CodexDialogue {
    transcript: Transcript,
    mode: PermissionMode,
    workdir: String,
    model: Option<String>,
    resume: Option<String>,
    thread: Option<String>,
    turn: Option<String>,
    /// An interrupt was requested before the turn had an id.
    interrupt_pending: bool,
    /// Prompts that are queued until the thread is open.
    prompts: VecDeque<Prompt>,
    /// The error that prevented a thread; every prompt fails with it.
    open_error: Option<String>,
    requests: HashMap<u64, CodexRequest>,
    last_request: u64,
    permissions: HashMap<PermissionId, server_request::ServerRequest>,
    questions: HashMap<QuestionId, server_request::ServerRequest>,
    error_reported: bool,
    sub_agents: sub_agent::SubAgents,
    /// An interrupt was requested; sub-agents that start now are interrupted as well.
    interrupt_requested: bool,
    /// The outcome of the main turn while sub-agents are still working.
    pending_outcome: Option<TurnOutcome>,
}

impl CodexDialogue {
    fn request(&mut self, kind: CodexRequest, method: &str, params: &Value) {
        self.last_request += 1;
        self.requests.insert(self.last_request, kind);
        self.transcript.send(&json!({ "id": self.last_request, "method": method, "params": params }));
    }

    fn handle_message(&mut self, value: Value) {
        match (value["method"].as_str(), value.get("id")) {
            (Some(method), Some(id)) => {
                let (method, id) = (method.to_owned(), id.clone());
                self.server_request(&method, &id, value);
            }
            (Some(method), None) => {
                let method = method.to_owned();
                self.notification(&method, value);
            }
            (None, Some(id)) => match id.as_u64().and_then(|id| self.requests.remove(&id)) {
                Some(request) => self.handle_response(request, &value),
                None => self.transcript.record_unknown(value),
            },
            (None, None) => self.transcript.record_unknown(value),
        }
    }

    fn handle_response(&mut self, request: CodexRequest, value: &Value) {
        if let Some(error) = value.get("error") {
            return self.handle_error(request, error["message"].as_str().unwrap_or("a request failed"));
        }
        let result = &value["result"];
        match request {
            CodexRequest::Initialize => self.open_thread(),
            CodexRequest::Thread => self.thread_opened(result),
            CodexRequest::Turn => self.set_turn(&result["turn"]),
            CodexRequest::Interrupt | CodexRequest::InterruptSubAgent => {}
        }
    }

    fn handle_error(&mut self, request: CodexRequest, message: &str) {
        match request {
            CodexRequest::Turn => self.fail_turn(message),
            // The sub-agent had finished before.
            CodexRequest::InterruptSubAgent => {}
            // The turn continues, and its end reports the outcome.
            CodexRequest::Interrupt => self.transcript.push_error(message, None, None),
            CodexRequest::Initialize | CodexRequest::Thread => {
                self.open_error = Some(message.to_owned());
                if !self.prompts.is_empty() {
                    self.fail_turn(message);
                }
            }
        }
    }

    fn fail_turn(&mut self, message: &str) {
        self.prompts.clear();
        self.transcript.push_error(message, Some("agent_process_exited"), None);
        self.transcript.end_turn(TurnOutcome::Failed);
    }

    fn open_thread(&mut self) {
        self.transcript.send(&json!({ "method": "initialized" }));
        let approval = if self.mode == PermissionMode::Bypass { "never" } else { "untrusted" };
        let mut params = json!({
            "cwd": self.workdir,
            "approvalPolicy": approval,
            // Codex' own sandbox cannot be nested in this one, which is stricter.
            "sandbox": "danger-full-access",
        });
        if let Some(model) = &self.model {
            params["model"] = json!(model);
        }
        match &self.resume {
            Some(thread) => {
                params["threadId"] = json!(thread);
                self.request(CodexRequest::Thread, "thread/resume", &params);
            }
            None => self.request(CodexRequest::Thread, "thread/start", &params),
        }
    }

    fn thread_opened(&mut self, result: &Value) {
        let Some(thread) = result["thread"]["id"].as_str() else { return };
        self.transcript.set_native_session(thread);
        self.thread = Some(thread.to_owned());
        let model = result["thread"]["model"].as_str().or(result["model"].as_str()).map(str::to_owned);
        self.model = self.model.take().or(model);
        while let Some(prompt) = self.prompts.pop_front() {
            self.start_turn(&prompt);
        }
    }

    /// Sets the id of the turn and sends a pending interrupt.
    fn set_turn(&mut self, turn: &Value) {
        if let Some(id) = turn["id"].as_str() {
            self.turn = Some(id.to_owned());
            self.stop_turn();
        }
    }

    fn stop_turn(&mut self) {
        if let (true, Some(thread), Some(turn)) = (self.interrupt_pending, &self.thread, &self.turn) {
            let params = json!({ "threadId": thread, "turnId": turn });
            self.interrupt_pending = false;
            self.request(CodexRequest::Interrupt, "turn/interrupt", &params);
        }
    }

    fn start_turn(&mut self, prompt: &Prompt) {
        let mut input = vec![json!({ "type": "text", "text": prompt.with_attachments_named() })];
        input.extend(prompt.images.iter().map(
            |picture| json!({ "type": "image", "url": format!("data:{};base64,{}", picture.mime, picture.data) }),
        ));
        let mut params = json!({ "threadId": self.thread, "input": input });
        if self.mode == PermissionMode::Plan {
            let settings = json!({ "model": self.model, "reasoning_effort": null, "developer_instructions": null });
            params["collaborationMode"] = json!({ "mode": "plan", "settings": settings });
        }
        self.request(CodexRequest::Turn, "turn/start", &params);
    }
}

impl Dialogue for CodexDialogue {
    fn open(&mut self) -> Vec<DialogueOutput> {
        let client = json!({ "name": "viv", "title": "Vivarium", "version": env!("CARGO_PKG_VERSION") });
        let params = json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } });
        self.request(CodexRequest::Initialize, "initialize", &params);
        self.transcript.take_outputs()
    }

    fn send_prompt(&mut self, prompt: &Prompt) -> Vec<DialogueOutput> {
        self.error_reported = false;
        self.interrupt_pending = false;
        self.interrupt_requested = false;
        match (&self.thread, self.open_error.clone()) {
            (_, Some(reason)) => self.fail_turn(&reason),
            (Some(_), None) => self.start_turn(prompt),
            (None, None) => self.prompts.push_back(prompt.clone()),
        }
        self.transcript.take_outputs()
    }

    fn read_line(&mut self, line: &[u8]) -> Vec<DialogueOutput> {
        if let Some(value) = self.transcript.parse_line(line) {
            let method = value["method"].as_str().unwrap_or_default();
            self.transcript.record_unknown_fields(&CODEX, method, &value["params"], &value);
            self.handle_message(value);
        }
        self.transcript.take_outputs()
    }

    fn answer_permission(&mut self, id: &PermissionId, reply: PermissionReply) -> Vec<DialogueOutput> {
        self.resolve_permission(id, reply);
        self.transcript.take_outputs()
    }

    fn answer_question(&mut self, id: &QuestionId, answers: Option<&[Vec<String>]>) -> Vec<DialogueOutput> {
        self.resolve_question(id, answers);
        self.transcript.take_outputs()
    }

    fn interrupt(&mut self) -> Vec<DialogueOutput> {
        if self.prompts.is_empty() {
            self.interrupt_pending = true;
            self.interrupt_requested = true;
            self.stop_turn();
            self.stop_sub_agents();
            self.pending_outcome = self.pending_outcome.map(|_| TurnOutcome::Interrupted);
        } else {
            self.prompts.clear();
            self.transcript.end_turn(TurnOutcome::Interrupted);
        }
        self.transcript.take_outputs()
    }
}
