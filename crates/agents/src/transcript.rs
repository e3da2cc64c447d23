//! The events of one conversation while they are being written.
//!
//! Every dialogue writes through a `Transcript`, so that the same thing looks the same whichever agent
//! did it.

use protocol::{
    ContentPart, Draft, ErrorData, EventBody, Item, ItemEvent, ItemId, ItemKind, ItemRole, ItemStatus, Permission,
    PermissionId, PermissionStatus, Question, QuestionId, QuestionStatus, TurnOutcome,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Output, raw};

/// Writes outputs and gives the ids that stand in them.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    epoch: u32,
    items: u64,
    permissions: u64,
    questions: u64,
    output: Vec<Output>,
}

impl Transcript {
    pub(crate) fn new(epoch: u32) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Everything written since the last time.
    pub(crate) fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.output)
    }

    /// A line for the agent.
    pub(crate) fn send(&mut self, line: &impl Serialize) {
        // Our own lines are maps with string keys: they always serialize.
        if let Ok(text) = serde_json::to_string(line) {
            self.output.push(Output::Send(text));
        }
    }

    pub(crate) fn native_session(&mut self, id: &str) {
        self.output.push(Output::NativeSession(id.to_owned()));
    }

    pub(crate) fn turn_ended(&mut self, outcome: TurnOutcome) {
        self.output.push(Output::TurnEnded(outcome));
    }

    pub(crate) fn event(&mut self, body: EventBody) {
        self.output.push(Output::Event(Draft::agent(body)));
    }

    /// The id of an item that the caller builds itself.
    pub(crate) fn next_item_id(&mut self) -> ItemId {
        self.items += 1;
        ItemId::numbered(self.epoch, self.items)
    }

    /// A new item, not yet told of.
    pub(crate) fn item(&mut self, kind: ItemKind, role: ItemRole) -> Item {
        Item {
            item_id: self.next_item_id(),
            native_item_id: None,
            parent_id: None,
            kind,
            role: Some(role),
            content: Vec::new(),
            status: ItemStatus::InProgress,
        }
    }

    pub(crate) fn started(&mut self, item: &Item) {
        self.event(EventBody::ItemStarted(ItemEvent { item: item.clone() }));
    }

    /// The agent may not go on before somebody said yes.
    pub(crate) fn permission(&mut self, action: &str, metadata: Value) -> PermissionId {
        self.permissions += 1;
        let permission_id = PermissionId::numbered(self.epoch, self.permissions);
        self.event(EventBody::PermissionRequested(Permission {
            permission_id: permission_id.clone(),
            action: action.to_owned(),
            status: PermissionStatus::Requested,
            metadata: Some(metadata),
        }));
        permission_id
    }

    /// The agent no longer waits for this answer.
    pub(crate) fn permission_withdrawn(&mut self, permission_id: PermissionId, action: &str) {
        self.event(EventBody::PermissionResolved(Permission {
            permission_id,
            action: action.to_owned(),
            status: PermissionStatus::Reject,
            metadata: Some(json!({ "reason": "withdrawn" })),
        }));
    }

    /// The agent asks a person.
    pub(crate) fn question(&mut self, prompt: &str, options: Vec<String>, metadata: Option<Value>) -> QuestionId {
        self.questions += 1;
        let question_id = QuestionId::numbered(self.epoch, self.questions);
        self.event(EventBody::QuestionRequested(Question {
            question_id: question_id.clone(),
            prompt: prompt.to_owned(),
            options,
            response: None,
            answers: None,
            status: QuestionStatus::Requested,
            metadata,
        }));
        question_id
    }

    /// The agent no longer waits for this answer.
    pub(crate) fn question_withdrawn(&mut self, question_id: QuestionId, prompt: &str) {
        self.event(EventBody::QuestionResolved(Question {
            question_id,
            prompt: prompt.to_owned(),
            options: Vec::new(),
            response: None,
            answers: None,
            status: QuestionStatus::Rejected,
            metadata: Some(json!({ "reason": "withdrawn" })),
        }));
    }

    pub(crate) fn error(&mut self, message: impl Into<String>, code: Option<&str>, details: Option<Value>) {
        self.event(EventBody::Error(ErrorData {
            message: message.into(),
            code: code.map(str::to_owned),
            details: details.map(raw::bounded),
        }));
    }

    /// Something readable that has no meaning for us: kept as an item.
    pub(crate) fn unknown(&mut self, value: Value) {
        let value = raw::bounded(value);
        let mut item = self.item(ItemKind::Unknown, ItemRole::System);
        item.content = vec![ContentPart::Json { json: value.clone() }];
        self.started(&item);
        item.status = ItemStatus::Completed;
        let body = EventBody::ItemCompleted(ItemEvent { item });
        self.output.push(Output::Event(Draft::agent(body).with_raw(value)));
    }

    /// Something that we could not read at all.
    pub(crate) fn unparsed(&mut self, line: &[u8], error: impl Into<String>) {
        self.output.push(Output::Event(raw::unparsed(line, error)));
    }

    /// Reads a line as a JSON object. What is not one is written down, blank lines are not.
    pub(crate) fn read(&mut self, line: &[u8]) -> Option<Value> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(value) if value.is_object() => return Some(value),
            Ok(_) => self.unparsed(line, "not a JSON object"),
            Err(error) => self.unparsed(line, format!("not JSON: {error}")),
        }
        None
    }
}
