//! Collects the events of one conversation.
//!
//! Every dialogue writes through a `Transcript`, so that events look the same for every agent. Text is streamed. A tool
//! call is an item that is completed when its result arrives, and the result is an item below it. At the end of a turn,
//! no item or request stays open.

mod pending;
mod plan;
mod text;
mod tool_call;

use std::collections::{BTreeSet, VecDeque};

use protocol::{
    ContentPart, ErrorData, EventBody, EventDraft, Item, ItemDelta, ItemEvent, ItemId, ItemKind, ItemRole, ItemStatus,
    TurnOutcome,
};
use serde::Serialize;
use serde_json::Value;

use crate::known_fields::KnownFields;
use crate::{DialogueOutput, raw};

pub(crate) use pending::PermissionDetails;
pub(crate) use plan::PlanStep;
pub(crate) use text::TextKind;
pub(crate) use tool_call::ToolOutcome;

/// The number of ended calls that are remembered. Agents may add items below a call that has already ended.
const MAX_ENDED_CALLS: usize = 4096;
/// The number of unknown fields that are remembered, so that an agent cannot fill the memory.
const MAX_UNKNOWN_FIELDS: usize = 64;

/// Collects outputs and assigns ids.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    epoch: u32,
    items: u64,
    pending: pending::PendingRequests,
    calls: Vec<tool_call::OpenCall>,
    /// Ended calls and their items, oldest first.
    ended_calls: VecDeque<(String, ItemId)>,
    open_texts: Vec<text::OpenText>,
    output: Vec<DialogueOutput>,
    /// Unknown fields that were recorded; each is recorded once.
    unknown_fields: BTreeSet<String>,
}

impl Transcript {
    pub(crate) fn new(epoch: u32) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Returns and removes all outputs since the last call.
    pub(crate) fn take_outputs(&mut self) -> Vec<DialogueOutput> {
        std::mem::take(&mut self.output)
    }

    /// Adds a line for the agent.
    pub(crate) fn send(&mut self, line: &impl Serialize) {
        // These lines are maps with string keys, which always serialize.
        if let Ok(text) = serde_json::to_string(line) {
            self.output.push(DialogueOutput::Send(text));
        }
    }

    pub(crate) fn set_native_session(&mut self, id: &str) {
        self.output.push(DialogueOutput::NativeSession(id.to_owned()));
    }

    /// Ends the turn and closes everything that is still open.
    pub(crate) fn end_turn(&mut self, outcome: TurnOutcome) {
        self.finish_texts(if outcome == TurnOutcome::Completed { ItemStatus::Completed } else { ItemStatus::Failed });
        self.withdraw_all();
        self.fail_open_calls();
        self.output.push(DialogueOutput::TurnEnded(outcome));
    }

    pub(crate) fn push_event(&mut self, body: EventBody) {
        self.output.push(DialogueOutput::Event(EventDraft::agent(body)));
    }

    /// Returns the id for an item that the caller builds.
    pub(crate) fn next_item_id(&mut self) -> ItemId {
        self.items += 1;
        ItemId::numbered(self.epoch, self.items)
    }

    /// Returns a new item without emitting it.
    pub(crate) fn new_item(&mut self, kind: ItemKind, role: ItemRole) -> Item {
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

    pub(crate) fn start_item(&mut self, item: &Item) {
        self.push_event(EventBody::ItemStarted(ItemEvent { item: item.clone() }));
    }

    fn push_delta(&mut self, item: &Item, delta: &str) {
        let (item_id, native_item_id) = (item.item_id.clone(), item.native_item_id.clone());
        self.push_event(EventBody::ItemDelta(ItemDelta { item_id, native_item_id, delta: delta.to_owned() }));
    }

    pub(crate) fn complete_item(&mut self, mut item: Item, status: ItemStatus) {
        item.status = status;
        self.push_event(EventBody::ItemCompleted(ItemEvent { item }));
    }

    /// Adds a status item.
    pub(crate) fn push_status(&mut self, label: &str, detail: Option<String>, parts: Vec<ContentPart>) {
        self.push_status_under(None, label, detail, parts);
    }

    /// Adds a status item below `parent`.
    pub(crate) fn push_status_under(
        &mut self,
        parent: Option<ItemId>,
        label: &str,
        detail: Option<String>,
        parts: Vec<ContentPart>,
    ) {
        let mut item = self.new_item(ItemKind::Status, ItemRole::System);
        item.parent_id = parent;
        item.content = vec![ContentPart::Status { label: label.to_owned(), detail }];
        item.content.extend(parts);
        self.start_item(&item);
        self.complete_item(item, ItemStatus::Completed);
    }

    pub(crate) fn push_error(&mut self, message: impl Into<String>, code: Option<&str>, details: Option<Value>) {
        self.push_event(EventBody::Error(ErrorData {
            message: message.into(),
            code: code.map(str::to_owned),
            details: details.map(raw::bounded),
        }));
    }

    /// Records a message that is valid JSON but unknown, as an item.
    pub(crate) fn record_unknown(&mut self, value: Value) {
        let value = raw::bounded(value);
        let mut item = self.new_item(ItemKind::Unknown, ItemRole::System);
        item.content = vec![ContentPart::Json { json: value.clone() }];
        self.start_item(&item);
        item.status = ItemStatus::Completed;
        let body = EventBody::ItemCompleted(ItemEvent { item });
        self.output.push(DialogueOutput::Event(EventDraft::agent(body).with_raw(value)));
    }

    /// Records the whole `message` if it contains unknown fields, once for each field.
    pub(crate) fn record_unknown_once(&mut self, paths: impl IntoIterator<Item = String>, message: &Value) {
        let mut is_new = false;
        for path in paths {
            is_new |= self.unknown_fields.len() < MAX_UNKNOWN_FIELDS && self.unknown_fields.insert(path);
        }
        if is_new {
            self.record_unknown(message.clone());
        }
    }

    /// Records a message with fields that its protocol is not known to have.
    pub(crate) fn record_unknown_fields(&mut self, known: &KnownFields, kind: &str, fields: &Value, message: &Value) {
        let paths = known.unknown_fields(kind, fields);
        self.record_unknown_once(paths.into_iter().map(|path| format!("{kind} {path}")), message);
    }

    /// Records a line that is not valid.
    pub(crate) fn record_unparsed(&mut self, line: &[u8], error: impl Into<String>) {
        self.output.push(DialogueOutput::Event(raw::unparsed(line, error)));
    }

    /// Parses a line as a JSON object. Records other lines as unparsed and skips blank lines.
    pub(crate) fn parse_line(&mut self, line: &[u8]) -> Option<Value> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(value) if value.is_object() => return Some(value),
            Ok(_) => self.record_unparsed(line, "not a JSON object"),
            Err(error) => self.record_unparsed(line, format!("not JSON: {error}")),
        }
        None
    }
}
