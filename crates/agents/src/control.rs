//! The stdio control protocol of Claude Code, which Qwen Code uses as well.
//!
//! One process serves many turns. Both sides send JSON objects, one per line: prompts, messages and control requests.
//!
//! Not here: how either program is started (`claude`, `qwen`).

mod output;
mod tool_request;

use std::collections::HashMap;

use protocol::{PermissionId, PermissionReply, QuestionId};
use serde_json::{Value, json};

use crate::known_fields::CONTROL;
use crate::transcript::Transcript;
use crate::{Dialogue, DialogueOutput, LaunchContext, PermissionMode, Prompt};

/// Differences between the two programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ControlVariant {
    /// The prefix of a message that is an error of the model.
    pub(crate) error_prefix: Option<&'static str>,
    /// Returns the line that sends a prompt to a session.
    pub(crate) prompt: fn(&Prompt, Option<&str>) -> Value,
    /// Returns the key for the answer to a question, from its text and its index.
    pub(crate) answer_key: fn(&str, usize) -> String,
}

/// The protocol's state for one process.
#[derive(Debug)]
pub(crate) struct ControlDialogue {
    transcript: Transcript,
    variant: ControlVariant,
    requests: u64,
    session: Option<String>,
    permissions: HashMap<PermissionId, tool_request::ToolUseRequest>,
    questions: HashMap<QuestionId, tool_request::ToolUseRequest>,
    /// Plan mode is active until a person approves the plan.
    planning: bool,
    /// An interrupt was requested. The programs report its effect in different ways.
    interrupting: bool,
    /// An error of this turn was already reported.
    error_reported: bool,
    /// Text that may turn out to be an error message.
    withheld_text: Option<String>,
}

impl ControlDialogue {
    pub(crate) fn new(context: &LaunchContext, variant: ControlVariant) -> Self {
        Self {
            transcript: Transcript::new(context.epoch),
            variant,
            requests: 0,
            session: None,
            permissions: HashMap::new(),
            questions: HashMap::new(),
            planning: PermissionMode::of(context) == PermissionMode::Plan,
            interrupting: false,
            error_reported: false,
            withheld_text: None,
        }
    }

    fn request(&mut self, request: &Value) {
        self.requests += 1;
        let request_id = format!("viv-{}", self.requests);
        self.transcript.send(&json!({ "type": "control_request", "request_id": request_id, "request": request }));
    }

    fn respond(&mut self, request_id: &str, response: &Value) {
        let body = json!({ "subtype": "success", "request_id": request_id, "response": response });
        self.transcript.send(&json!({ "type": "control_response", "response": body }));
    }

    fn refuse(&mut self, request_id: &str, error: &str) {
        let body = json!({ "subtype": "error", "request_id": request_id, "error": error });
        self.transcript.send(&json!({ "type": "control_response", "response": body }));
    }

    /// Sets the session id that the program reports in every turn.
    fn name_session(&mut self, id: &Value) {
        if let Some(id) = id.as_str()
            && self.session.as_deref() != Some(id)
        {
            self.session = Some(id.to_owned());
            self.transcript.set_native_session(id);
        }
    }
}

impl Dialogue for ControlDialogue {
    fn open(&mut self) -> Vec<DialogueOutput> {
        self.request(&json!({ "subtype": "initialize" }));
        self.transcript.take_outputs()
    }

    fn send_prompt(&mut self, prompt: &Prompt) -> Vec<DialogueOutput> {
        self.error_reported = false;
        self.interrupting = false;
        let line = (self.variant.prompt)(prompt, self.session.as_deref());
        self.transcript.send(&line);
        self.transcript.take_outputs()
    }

    fn read_line(&mut self, line: &[u8]) -> Vec<DialogueOutput> {
        if let Some(value) = self.transcript.parse_line(line) {
            self.transcript.record_unknown_fields(&CONTROL, &output::kind(&value), &value, &value);
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
        self.interrupting = true;
        self.request(&json!({ "subtype": "interrupt" }));
        self.transcript.take_outputs()
    }
}
