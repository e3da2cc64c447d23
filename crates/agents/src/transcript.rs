//! The events of one conversation while they are being written.
//!
//! Every dialogue writes through a `Transcript`, so that the same thing looks the same whichever agent
//! did it: words are streamed, a tool call is one item that ends when its result comes, the result is an
//! item below it, and nothing is left open or unanswered when a turn ends.

mod pending;
mod tool_call;
mod plan;
mod text;

use std::collections::{BTreeSet, VecDeque};

use protocol::{
    ContentPart, ErrorData, EventBody, EventDraft, Item, ItemDelta, ItemEvent, ItemId, ItemKind, ItemRole, ItemStatus,
    TurnOutcome,
};
use serde::Serialize;
use serde_json::Value;

use crate::known_fields::KnownFields;
use crate::{DialogueOutput, raw};

pub(crate) use tool_call::ToolOutcome;
pub(crate) use text::TextKind;

/// The items of so many calls are kept after their end: agents go on below a call that gave back at once.
const MAX_ENDED_CALLS: usize = 4096;
/// So many places of which an agent tells more than is known are kept; an agent cannot fill the memory with names.
const MAX_UNKNOWN_FIELDS: usize = 64;

/// Writes outputs and gives the ids that stand in them.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    epoch: u32,
    items: u64,
    pending: pending::PendingRequests,
    calls: Vec<tool_call::OpenCall>,
    /// The items of calls that have ended, the oldest first.
    ended_calls: VecDeque<(String, ItemId)>,
    open_texts: Vec<text::OpenText>,
    output: Vec<DialogueOutput>,
    /// Places of messages that hold more than anybody here knows, each told of once.
    unknown_fields: BTreeSet<String>,
}

impl Transcript {
    pub(crate) fn new(epoch: u32) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Everything written since the last time.
    pub(crate) fn take_outputs(&mut self) -> Vec<DialogueOutput> {
        std::mem::take(&mut self.output)
    }

    /// A line for the agent.
    pub(crate) fn send(&mut self, line: &impl Serialize) {
        // Our own lines are maps with string keys: they always serialize.
        if let Ok(text) = serde_json::to_string(line) {
            self.output.push(DialogueOutput::Send(text));
        }
    }

    pub(crate) fn set_native_session(&mut self, id: &str) {
        self.output.push(DialogueOutput::NativeSession(id.to_owned()));
    }

    /// Ends the turn, and with it everything that the agent left open.
    pub(crate) fn end_turn(&mut self, outcome: TurnOutcome) {
        self.finish_texts(if outcome == TurnOutcome::Completed { ItemStatus::Completed } else { ItemStatus::Failed });
        self.withdraw_all();
        self.fail_open_calls();
        self.output.push(DialogueOutput::TurnEnded(outcome));
    }

    pub(crate) fn push_event(&mut self, body: EventBody) {
        self.output.push(DialogueOutput::Event(EventDraft::agent(body)));
    }

    /// The id of an item that the caller builds itself.
    pub(crate) fn next_item_id(&mut self) -> ItemId {
        self.items += 1;
        ItemId::numbered(self.epoch, self.items)
    }

    /// A new item, not yet told of.
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

    /// A short word on what goes on.
    pub(crate) fn push_status(&mut self, label: &str, detail: Option<String>, parts: Vec<ContentPart>) {
        self.push_status_under(None, label, detail, parts);
    }

    /// The same on what goes on below `parent`.
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

    /// Something readable that has no meaning for us: kept as an item.
    pub(crate) fn record_unknown(&mut self, value: Value) {
        let value = raw::bounded(value);
        let mut item = self.new_item(ItemKind::Unknown, ItemRole::System);
        item.content = vec![ContentPart::Json { json: value.clone() }];
        self.start_item(&item);
        item.status = ItemStatus::Completed;
        let body = EventBody::ItemCompleted(ItemEvent { item });
        self.output.push(DialogueOutput::Event(EventDraft::agent(body).with_raw(value)));
    }

    /// Keeps `said` whole where it holds more than was understood of it, once for each such place.
    pub(crate) fn record_unknown_once(&mut self, places: impl IntoIterator<Item = String>, said: &Value) {
        let mut news = false;
        for place in places {
            news |= self.unknown_fields.len() < MAX_UNKNOWN_FIELDS && self.unknown_fields.insert(place);
        }
        if news {
            self.record_unknown(said.clone());
        }
    }

    /// The same for a message that has fields which its protocol is not known to have.
    pub(crate) fn record_unknown_fields(&mut self, known: &KnownFields, kind: &str, fields: &Value, said: &Value) {
        let places = known.unknown_fields(kind, fields);
        self.record_unknown_once(places.into_iter().map(|place| format!("{kind} {place}")), said);
    }

    /// Something that we could not read at all.
    pub(crate) fn record_unparsed(&mut self, line: &[u8], error: impl Into<String>) {
        self.output.push(DialogueOutput::Event(raw::unparsed(line, error)));
    }

    /// Reads a line as a JSON object. What is not one is written down, blank lines are not.
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
