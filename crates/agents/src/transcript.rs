//! The events of one conversation while they are being written.
//!
//! Every dialogue writes through a `Transcript`, so that the same thing looks the same whichever agent
//! did it: words are streamed, a tool call is one item that ends when its result comes, the result is an
//! item below it, and nothing is left open or unanswered when a turn ends.

mod ask;
mod call;
mod plan;
mod speech;

use std::collections::{BTreeSet, VecDeque};

use protocol::{
    ContentPart, ErrorData, EventBody, EventDraft, Item, ItemDelta, ItemEvent, ItemId, ItemKind, ItemRole, ItemStatus,
    TurnOutcome,
};
use serde::Serialize;
use serde_json::Value;

use crate::known::Known;
use crate::{DialogueOutput, raw};

pub(crate) use call::ToolOutcome;
pub(crate) use speech::Speech;

/// The items of so many calls are kept after their end: agents go on below a call that gave back at once.
const CALLS_KEPT: usize = 4096;
/// So many places of which an agent tells more than is known are kept; an agent cannot fill the memory with names.
const ODD_KEPT: usize = 64;

/// Writes outputs and gives the ids that stand in them.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    epoch: u32,
    items: u64,
    asked: ask::Asked,
    calls: Vec<call::OpenCall>,
    /// The items of calls that have ended, the oldest first.
    ended: VecDeque<(String, ItemId)>,
    speech: Vec<speech::OpenSpeech>,
    output: Vec<DialogueOutput>,
    /// Places of messages that hold more than anybody here knows, each told of once.
    odd: BTreeSet<String>,
}

impl Transcript {
    pub(crate) fn new(epoch: u32) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Everything written since the last time.
    pub(crate) fn take(&mut self) -> Vec<DialogueOutput> {
        std::mem::take(&mut self.output)
    }

    /// A line for the agent.
    pub(crate) fn send(&mut self, line: &impl Serialize) {
        // Our own lines are maps with string keys: they always serialize.
        if let Ok(text) = serde_json::to_string(line) {
            self.output.push(DialogueOutput::Send(text));
        }
    }

    pub(crate) fn native_session(&mut self, id: &str) {
        self.output.push(DialogueOutput::NativeSession(id.to_owned()));
    }

    /// Ends the turn, and with it everything that the agent left open.
    pub(crate) fn turn_ended(&mut self, outcome: TurnOutcome) {
        self.finish_speech(if outcome == TurnOutcome::Completed { ItemStatus::Completed } else { ItemStatus::Failed });
        self.withdraw_all();
        self.abandon_calls();
        self.output.push(DialogueOutput::TurnEnded(outcome));
    }

    pub(crate) fn event(&mut self, body: EventBody) {
        self.output.push(DialogueOutput::Event(EventDraft::agent(body)));
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

    fn delta(&mut self, item: &Item, delta: &str) {
        let (item_id, native_item_id) = (item.item_id.clone(), item.native_item_id.clone());
        self.event(EventBody::ItemDelta(ItemDelta { item_id, native_item_id, delta: delta.to_owned() }));
    }

    pub(crate) fn completed(&mut self, mut item: Item, status: ItemStatus) {
        item.status = status;
        self.event(EventBody::ItemCompleted(ItemEvent { item }));
    }

    /// A short word on what goes on.
    pub(crate) fn status(&mut self, label: &str, detail: Option<String>, parts: Vec<ContentPart>) {
        self.status_in(None, label, detail, parts);
    }

    /// The same on what goes on below `parent`.
    pub(crate) fn status_in(
        &mut self,
        parent: Option<ItemId>,
        label: &str,
        detail: Option<String>,
        parts: Vec<ContentPart>,
    ) {
        let mut item = self.item(ItemKind::Status, ItemRole::System);
        item.parent_id = parent;
        item.content = vec![ContentPart::Status { label: label.to_owned(), detail }];
        item.content.extend(parts);
        self.started(&item);
        self.completed(item, ItemStatus::Completed);
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
        self.output.push(DialogueOutput::Event(EventDraft::agent(body).with_raw(value)));
    }

    /// Keeps `said` whole where it holds more than was understood of it, once for each such place.
    pub(crate) fn keep_once(&mut self, places: impl IntoIterator<Item = String>, said: &Value) {
        let mut news = false;
        for place in places {
            news |= self.odd.len() < ODD_KEPT && self.odd.insert(place);
        }
        if news {
            self.unknown(said.clone());
        }
    }

    /// The same for a message that has fields which its protocol is not known to have.
    pub(crate) fn keep_strays(&mut self, known: &Known, kind: &str, fields: &Value, said: &Value) {
        let places = known.strays(kind, fields);
        self.keep_once(places.into_iter().map(|place| format!("{kind} {place}")), said);
    }

    /// Something that we could not read at all.
    pub(crate) fn unparsed(&mut self, line: &[u8], error: impl Into<String>) {
        self.output.push(DialogueOutput::Event(raw::unparsed(line, error)));
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
