//! Client of the Agent Client Protocol (ACP), which Gemini, `OpenCode` and Copilot implement.
//!
//! Messages use the types of `agent-client-protocol-schema`. Its runtime is not used: it owns the connection and
//! rejects unknown messages. A dialogue is pure, handles one line at a time, and records unknown messages and fields.
//!
//! No file system and no terminal is offered to the agent: it uses its own inside the sandbox.

mod call;
mod permission;
mod update;
mod wire;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use agent_client_protocol_schema::{
    CLIENT_METHOD_NAMES, CancelNotification, ClientCapabilities, ClientNotification, ClientRequest, ContentBlock,
    Error, ErrorCode, ImageContent, Implementation, InitializeRequest, LoadSessionRequest, NewSessionRequest,
    NewSessionResponse, PromptRequest, PromptResponse, ProtocolVersion, SetSessionModeRequest, StopReason,
};
use protocol::{PermissionId, PermissionReply, QuestionId, TurnOutcome};
use serde_json::Value;

use crate::transcript::Transcript;
use crate::{Dialogue, DialogueOutput, LaunchContext, PermissionMode, Prompt};

/// Differences between ACP agents.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AcpQuirks {
    /// The agent's name for plan mode. The other modes are implemented here.
    pub(crate) plan_mode: Option<&'static str>,
    /// Recognizes a message that comes from the program and not from the model.
    pub(crate) notice: Option<fn(&str) -> Option<ProgramNotice>>,
    /// The agent prints the name of a file that it writes as a message. The call contains the name as well.
    pub(crate) announces_files: bool,
    /// The agent reports that an old session is loaded before it has replayed all of it. Its list of commands follows
    /// the replay.
    pub(crate) replays_after_load: bool,
}

/// A message from the program itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramNotice {
    /// The model failed, and the turn with it.
    Error,
    /// The model failed, and the call is retried.
    Retrying,
    /// Information for the user, with this label.
    Status(&'static str),
}

/// The kind of a request that waits for a response of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcpRequest {
    Initialize,
    Session,
    Mode,
    Prompt,
}

/// The protocol's state for one process.
#[derive(Debug)]
pub(crate) struct AcpDialogue {
    transcript: Transcript,
    quirks: AcpQuirks,
    mode: PermissionMode,
    workdir: String,
    resume: Option<String>,
    session: Option<String>,
    /// An old session is being loaded; the agent replays all of its events.
    replaying: bool,
    prompts: VecDeque<Prompt>,
    /// Whether the agent accepts images, as it reported at the start.
    accepts_images: bool,
    /// The error that prevented a session; every prompt fails with it.
    open_error: Option<String>,
    requests: HashMap<i64, AcpRequest>,
    last_request: i64,
    permissions: BTreeMap<PermissionId, permission::AcpPermissionRequest>,
    /// Denied calls whose end was not reported yet. One agent never reports it.
    refused: BTreeSet<String>,
    /// The program reported that the model failed.
    model_failed: bool,
    /// An interrupt withdrew an open request, so the turn counts as interrupted in any case.
    interrupted_request: bool,
}

impl AcpDialogue {
    pub(crate) fn new(context: &LaunchContext, quirks: AcpQuirks) -> Self {
        Self {
            transcript: Transcript::new(context.epoch),
            quirks,
            mode: PermissionMode::of(context),
            workdir: context.workdir(),
            resume: context.native_session_id.clone(),
            session: None,
            replaying: false,
            prompts: VecDeque::new(),
            accepts_images: false,
            open_error: None,
            requests: HashMap::new(),
            last_request: 0,
            permissions: BTreeMap::new(),
            refused: BTreeSet::new(),
            model_failed: false,
            interrupted_request: false,
        }
    }

    fn request(&mut self, kind: AcpRequest, request: ClientRequest) {
        self.last_request += 1;
        self.requests.insert(self.last_request, kind);
        self.transcript.send(&wire::request(self.last_request, request));
    }

    fn handle_message(&mut self, value: Value) {
        let id = value.get("id").map(wire::decode);
        match (value["method"].as_str(), id) {
            (Some(method), None) if method == CLIENT_METHOD_NAMES.session_update => self.update(value),
            (Some(method), Some(Some(id))) if method == CLIENT_METHOD_NAMES.session_request_permission => {
                self.ask(id, &value["params"]);
            }
            // Requests for files or terminals of the host are always refused.
            (Some(_), Some(Some(id))) => self.transcript.send(&wire::refusal(id)),
            (None, Some(_)) => match value["id"].as_i64().and_then(|id| self.requests.remove(&id)) {
                Some(request) => self.handle_response(request, &value),
                None => self.transcript.record_unknown(value),
            },
            _ => self.transcript.record_unknown(value),
        }
    }

    fn handle_response(&mut self, request: AcpRequest, value: &Value) {
        if let Some(error) = value.get("error") {
            return self.handle_error(request, error);
        }
        let result = &value["result"];
        match request {
            AcpRequest::Initialize => {
                self.accepts_images =
                    result.pointer("/agentCapabilities/promptCapabilities/image") == Some(&Value::Bool(true));
                self.open_session();
            }
            AcpRequest::Session => self.session_opened(result),
            AcpRequest::Mode => {}
            AcpRequest::Prompt => self.prompt_ended(result),
        }
    }

    fn handle_error(&mut self, request: AcpRequest, error: &Value) {
        let decoded = wire::decode(error).unwrap_or_else(|| {
            let message = error["message"].as_str().unwrap_or("a request failed");
            Error::new(ErrorCode::InternalError.into(), message).data(error["data"].clone())
        });
        // Some agents forward the response body of their vendor's server.
        let body: Value = serde_json::from_str(&decoded.message).unwrap_or_default();
        let details = decoded.data.as_ref().and_then(|data| data.get("details"));
        let message = body.pointer("/error/message").or(details).and_then(Value::as_str);
        let message = message.unwrap_or(&decoded.message);
        self.close_refused_calls();
        if request == AcpRequest::Prompt {
            self.transcript.push_error(message, Some("upstream_error"), Some(error.clone()));
            return self.end_turn(TurnOutcome::Failed);
        }
        if request == AcpRequest::Session && self.resume.take().is_some() {
            // An agent that cannot load its saved sessions reports an error; a new session is started for it.
            self.replaying = false;
            let words = format!("cannot resume the agent's session; starting a new one: {message}");
            self.transcript.push_error(words, None, Some(error.clone()));
            return self.open_session();
        }
        // Nothing works without a session. If the mode could not be set, the agent would have more rights than
        // requested.
        self.session = None;
        self.open_error = Some(message.to_owned());
        if self.has_pending_prompt() {
            self.fail_turn(message);
        }
    }

    /// Returns whether a prompt was sent or queued whose turn has not ended.
    fn has_pending_prompt(&self) -> bool {
        !self.prompts.is_empty() || self.requests.values().any(|request| *request == AcpRequest::Prompt)
    }

    fn fail_turn(&mut self, message: &str) {
        self.prompts.clear();
        self.requests.clear();
        self.transcript.push_error(message, Some("agent_process_exited"), None);
        self.end_turn(TurnOutcome::Failed);
    }

    fn open_session(&mut self) {
        let request = match self.resume.clone() {
            Some(session) => {
                self.replaying = true;
                ClientRequest::LoadSessionRequest(LoadSessionRequest::new(session, &self.workdir))
            }
            None => ClientRequest::NewSessionRequest(NewSessionRequest::new(&self.workdir)),
        };
        self.request(AcpRequest::Session, request);
    }

    fn session_opened(&mut self, result: &Value) {
        self.replaying = self.replaying && self.quirks.replays_after_load;
        let opened = wire::decode::<NewSessionResponse>(result).map(|opened| opened.session_id.to_string());
        let Some(session) = opened.or_else(|| self.resume.clone()) else {
            return self.transcript.record_unknown(result.clone());
        };
        self.transcript.set_native_session(&session);
        if let Some(mode) = self.quirks.plan_mode.filter(|_| self.mode == PermissionMode::Plan) {
            let request = SetSessionModeRequest::new(session.clone(), mode);
            self.request(AcpRequest::Mode, ClientRequest::SetSessionModeRequest(request));
        }
        self.session = Some(session);
        self.start_prompts();
    }

    /// Sends queued prompts as soon as the session is open.
    fn start_prompts(&mut self) {
        while let Some(session) = self.session.clone().filter(|_| !self.replaying) {
            let Some(prompt) = self.prompts.pop_front() else { break };
            let mut content: Vec<ContentBlock> = vec![prompt.with_attachments_named().into()];
            let pictures = prompt.images.into_iter().filter(|_| self.accepts_images);
            content.extend(pictures.map(|picture| ContentBlock::Image(ImageContent::new(picture.data, picture.mime))));
            let request = PromptRequest::new(session, content);
            self.request(AcpRequest::Prompt, ClientRequest::PromptRequest(request));
        }
    }

    fn prompt_ended(&mut self, result: &Value) {
        self.close_refused_calls();
        let outcome = match wire::decode::<PromptResponse>(result).map(|ended| ended.stop_reason) {
            Some(StopReason::Cancelled) => TurnOutcome::Interrupted,
            Some(StopReason::EndTurn) if self.interrupted_request => TurnOutcome::Interrupted,
            Some(StopReason::EndTurn) if self.model_failed => TurnOutcome::Failed,
            Some(StopReason::EndTurn) => TurnOutcome::Completed,
            _ => {
                let reason = result["stopReason"].as_str().unwrap_or("unknown reason");
                self.transcript.push_error(format!("the agent stopped: {reason}"), None, Some(result.clone()));
                TurnOutcome::Failed
            }
        };
        self.end_turn(outcome);
    }

    fn end_turn(&mut self, outcome: TurnOutcome) {
        self.permissions.clear();
        self.refused.clear();
        self.model_failed = false;
        self.interrupted_request = false;
        self.transcript.end_turn(outcome);
    }
}

impl Dialogue for AcpDialogue {
    fn open(&mut self) -> Vec<DialogueOutput> {
        let request = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::new())
            .client_info(Implementation::new("viv", env!("CARGO_PKG_VERSION")));
        self.request(AcpRequest::Initialize, ClientRequest::InitializeRequest(request));
        self.transcript.take_outputs()
    }

    fn send_prompt(&mut self, prompt: &Prompt) -> Vec<DialogueOutput> {
        if let Some(reason) = self.open_error.clone() {
            self.fail_turn(&reason);
        } else {
            self.prompts.push_back(prompt.clone());
            self.start_prompts();
        }
        self.transcript.take_outputs()
    }

    fn read_line(&mut self, line: &[u8]) -> Vec<DialogueOutput> {
        if let Some(value) = self.transcript.parse_line(line) {
            self.handle_message(value);
        }
        self.transcript.take_outputs()
    }

    fn answer_permission(&mut self, id: &PermissionId, reply: PermissionReply) -> Vec<DialogueOutput> {
        self.resolve_permission(id, reply);
        self.transcript.take_outputs()
    }

    fn answer_question(&mut self, _: &QuestionId, _: Option<&[Vec<String>]>) -> Vec<DialogueOutput> {
        // None of the three agents offers questions over ACP: two have no such tool, and the third accepts answers only
        // through its own server.
        Vec::new()
    }

    fn interrupt(&mut self) -> Vec<DialogueOutput> {
        if let Some(session) = self.session.as_ref().filter(|_| self.prompts.is_empty()) {
            let cancel = CancelNotification::new(session.clone());
            self.transcript.send(&wire::notification(ClientNotification::CancelNotification(cancel)));
            // The interrupt denies the open request, here or a moment before in the session.
            self.interrupted_request |= !self.permissions.is_empty() || !self.refused.is_empty();
            // The protocol requires that every open request is answered as cancelled.
            self.cancel_permissions();
        } else if !self.prompts.is_empty() {
            self.prompts.clear();
            self.end_turn(TurnOutcome::Interrupted);
        }
        self.transcript.take_outputs()
    }
}
