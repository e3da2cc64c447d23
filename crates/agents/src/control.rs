//! The stdio control protocol of Claude Code, which Qwen Code speaks too.
//!
//! One process serves many turns: prompts and control requests go in, messages and control requests come
//! out, each a JSON object a line. Not here: how either program is started (`claude`, `qwen`).

mod tool_request;
mod output;

use std::collections::HashMap;

use protocol::{PermissionId, PermissionReply, QuestionId};
use serde_json::{Value, json};

use crate::known_fields::CONTROL;
use crate::transcript::Transcript;
use crate::{Dialogue, DialogueOutput, LaunchContext, PermissionMode, Prompt};

/// Where the two programs differ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ControlVariant {
    /// How a message begins that is really an error of the model's side.
    pub(crate) error_prefix: Option<&'static str>,
    /// The line that hands over a prompt to the session of that name.
    pub(crate) prompt: fn(&Prompt, Option<&str>) -> Value,
    /// Under which name the answer to a question of these words, at this place in its list, is given.
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
    /// Nothing is changed until a person has approved of the plan.
    planning: bool,
    /// We asked it to stop: how it says so differs.
    interrupting: bool,
    /// An error of this turn was told already.
    error_reported: bool,
    /// Words of a block that may still turn out to be an error.
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

    /// The program named its session; it does so in every turn.
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
