//! The mock agent: its launch plan and its protocol.
//!
//! The mock is a real process in the real sandbox. Its event sequences are the reference for all other agents. The
//! crate `mock` contains the process.

mod line;

use std::collections::HashMap;

use protocol::{EventBody, Item, ItemDelta, ItemEvent, ItemId, PermissionId, PermissionReply, QuestionId};
use serde_json::Value;

use crate::launch::environment;
use crate::questions;
use crate::transcript::Transcript;
use crate::{
    Agent, AgentError, Dialogue, DialogueOutput, LaunchContext, LaunchPlan, NpmPackage, PermissionMode, Prompt,
    ReadOnlyMount, SavedHome,
};

pub use line::{AgentLine, HostLine, LineItem};

const MODES: &[PermissionMode] =
    &[PermissionMode::Default, PermissionMode::Plan, PermissionMode::AcceptEdits, PermissionMode::Bypass];

/// Path of the mock's program inside the sandbox.
const PROGRAM: &str = "/run/viv/bin/viv";
/// The types of [`AgentLine`]. A line of a known type with another form is unparsed, not unknown.
const LINE_TYPES: &[&str] = &[
    "ready",
    "item_started",
    "item_delta",
    "item_completed",
    "permission_requested",
    "permission_withdrawn",
    "question_requested",
    "question_withdrawn",
    "error",
    "turn_ended",
];

/// The agent `mock`.
#[derive(Debug, Clone, Copy)]
pub struct MockAgent;

impl Agent for MockAgent {
    fn id(&self) -> &'static str {
        "mock"
    }

    fn package(&self) -> Option<&'static NpmPackage> {
        None
    }

    fn skill_root(&self) -> Option<&'static str> {
        Some("/home/agent/.agents/skills")
    }

    fn plan(&self, context: &LaunchContext) -> Result<LaunchPlan, AgentError> {
        let mode = PermissionMode::select(context.permission_mode.as_deref(), self.id(), MODES)?;
        let mut argv: Vec<String> =
            [PROGRAM, "__agent", "mock", "--mode", mode.as_str()].into_iter().map(str::to_owned).collect();
        if let Some(session) = &context.native_session_id {
            argv.extend(["--resume".to_owned(), session.clone()]);
        }
        let env = environment(&[
            ("ANTHROPIC_BASE_URL", Some(&context.gateway_url)),
            ("ANTHROPIC_AUTH_TOKEN", Some(&context.token)),
            ("ANTHROPIC_MODEL", context.model.as_deref()),
        ]);
        let mounts = vec![ReadOnlyMount { source: context.program.clone(), target: PROGRAM.to_owned() }];
        Ok(LaunchPlan {
            argv,
            env,
            files: Vec::new(),
            mounts,
            workdir: context.workdir(),
            saved_home: SavedHome::of(&[]),
        })
    }

    fn new_dialogue(&self, context: &LaunchContext) -> Box<dyn Dialogue> {
        Box::new(MockDialogue { transcript: Transcript::new(context.epoch), ..MockDialogue::default() })
    }
}

#[derive(Debug, Default)]
struct MockDialogue {
    transcript: Transcript,
    items: HashMap<String, ItemId>,
    permissions: HashMap<PermissionId, String>,
    questions: HashMap<QuestionId, String>,
}

impl Dialogue for MockDialogue {
    fn open(&mut self) -> Vec<DialogueOutput> {
        Vec::new()
    }

    fn send_prompt(&mut self, prompt: &Prompt) -> Vec<DialogueOutput> {
        self.transcript.send(&HostLine::Prompt { text: prompt.text.clone(), attachments: prompt.attachments.clone() });
        self.transcript.take_outputs()
    }

    fn read_line(&mut self, line: &[u8]) -> Vec<DialogueOutput> {
        if let Some(value) = self.transcript.parse_line(line) {
            self.handle_message(value, line);
        }
        self.transcript.take_outputs()
    }

    fn answer_permission(&mut self, id: &PermissionId, reply: PermissionReply) -> Vec<DialogueOutput> {
        if self.transcript.take_permission(id)
            && let Some(id) = self.permissions.remove(id)
        {
            self.transcript.send(&HostLine::PermissionReply { id, reply });
        }
        self.transcript.take_outputs()
    }

    fn answer_question(&mut self, id: &QuestionId, answers: Option<&[Vec<String>]>) -> Vec<DialogueOutput> {
        if self.transcript.take_question(id)
            && let Some(id) = self.questions.remove(id)
        {
            self.transcript.send(&HostLine::QuestionReply { id, answers: answers.map(<[_]>::to_vec) });
        }
        self.transcript.take_outputs()
    }

    fn interrupt(&mut self) -> Vec<DialogueOutput> {
        self.transcript.send(&HostLine::Interrupt);
        self.transcript.take_outputs()
    }
}

impl MockDialogue {
    fn handle_message(&mut self, value: Value, line: &[u8]) {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
        if !LINE_TYPES.contains(&kind) {
            return self.transcript.record_unknown(value);
        }
        match serde_json::from_value::<AgentLine>(value) {
            Ok(known) => self.handle_line(known),
            Err(error) => self.transcript.record_unparsed(line, error.to_string()),
        }
    }

    fn handle_line(&mut self, line: AgentLine) {
        match line {
            AgentLine::Ready { session, .. } => self.transcript.set_native_session(&session),
            AgentLine::ItemStarted { item } => {
                let item = self.item(item);
                self.transcript.push_event(EventBody::ItemStarted(ItemEvent { item }));
            }
            AgentLine::ItemDelta { id, delta } => {
                let body = ItemDelta { item_id: self.item_id(&id), native_item_id: Some(id), delta };
                self.transcript.push_event(EventBody::ItemDelta(body));
            }
            AgentLine::ItemCompleted { item } => {
                let item = self.item(item);
                self.transcript.push_event(EventBody::ItemCompleted(ItemEvent { item }));
            }
            AgentLine::PermissionRequested { id, action, metadata } => {
                let permission = self.transcript.request_permission(&action, &metadata);
                self.permissions.insert(permission, id);
            }
            AgentLine::PermissionWithdrawn { id } => self.withdraw_permission(&id),
            AgentLine::QuestionRequested { id, prompt, options, questions } => {
                let question = if questions.is_empty() {
                    self.transcript.request_question(&prompt, options, None)
                } else {
                    questions::ask(&mut self.transcript, &questions)
                };
                self.questions.insert(question, id);
            }
            AgentLine::QuestionWithdrawn { id } => self.withdraw_question(&id),
            AgentLine::Error { message, code, details } => {
                self.transcript.push_error(message, code.as_deref(), details);
            }
            AgentLine::TurnEnded { outcome } => self.transcript.end_turn(outcome),
        }
    }

    fn item(&mut self, item: LineItem) -> Item {
        Item {
            item_id: self.item_id(&item.id),
            parent_id: item.parent.map(|parent| self.item_id(&parent)),
            native_item_id: Some(item.id),
            kind: item.kind,
            role: Some(item.role),
            content: item.content,
            status: item.status,
        }
    }

    fn item_id(&mut self, native: &str) -> ItemId {
        if let Some(id) = self.items.get(native) {
            return id.clone();
        }
        let id = self.transcript.next_item_id();
        self.items.insert(native.to_owned(), id.clone());
        id
    }

    fn withdraw_permission(&mut self, native: &str) {
        if let Some(id) = self.permissions.iter().find(|(_, id)| *id == native).map(|(id, _)| id.clone()) {
            self.transcript.withdraw_permission(&id);
        }
    }

    fn withdraw_question(&mut self, native: &str) {
        if let Some(id) = self.questions.iter().find(|(_, id)| *id == native).map(|(id, _)| id.clone()) {
            self.transcript.withdraw_question(&id);
        }
    }
}
