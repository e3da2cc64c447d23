//! Puts the events of an agent in strict order.
//!
//! Every item is emitted as `item.started → item.delta* → item.completed`, exactly once. Events that an agent leaves
//! out are added and marked `synthetic`. Events in an invalid order become `agent.unparsed`. Readers therefore need no
//! knowledge of the agent.

use std::collections::HashMap;

use protocol::{
    AgentUnparsed, ContentPart, EventBody, EventDraft, Item, ItemDelta, ItemEvent, ItemId, ItemKind, ItemRole,
    ItemStatus, PermissionId, PermissionReply, QuestionId, TurnOutcome,
};
use serde_json::Value;

use crate::{Dialogue, DialogueOutput, Prompt, raw};

/// Normalizes the outputs of one conversation.
#[derive(Debug, Default)]
pub struct EventNormalizer {
    items: HashMap<ItemId, ItemProgress>,
    started: Vec<ItemId>,
    open_requests: HashMap<String, bool>,
}

#[derive(Debug)]
enum ItemProgress {
    Open { item: Item, streamed: String },
    Done,
}

impl EventNormalizer {
    /// Returns a normalizer for a new conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the outputs that replace `output`.
    pub fn apply(&mut self, output: DialogueOutput) -> Vec<DialogueOutput> {
        match output {
            DialogueOutput::Event(draft) => self.event(draft).into_iter().map(DialogueOutput::Event).collect(),
            DialogueOutput::TurnEnded(outcome) => self.turn_ended(outcome),
            other => vec![other],
        }
    }

    fn event(&mut self, draft: EventDraft) -> Vec<EventDraft> {
        match &draft.body {
            EventBody::ItemStarted(ItemEvent { item }) => self.item_started(item.clone(), draft),
            EventBody::ItemDelta(delta) => self.item_delta(delta.clone(), draft),
            EventBody::ItemCompleted(ItemEvent { item }) => self.item_completed(item.clone(), draft),
            EventBody::PermissionRequested(permission) => {
                self.request_opened(permission.permission_id.to_string(), draft)
            }
            EventBody::PermissionResolved(permission) => {
                self.request_resolved(permission.permission_id.to_string(), draft)
            }
            EventBody::QuestionRequested(question) => self.request_opened(question.question_id.to_string(), draft),
            EventBody::QuestionResolved(question) => self.request_resolved(question.question_id.to_string(), draft),
            _ => vec![draft],
        }
    }

    fn item_started(&mut self, mut item: Item, mut draft: EventDraft) -> Vec<EventDraft> {
        if self.items.contains_key(&item.item_id) {
            return vec![out_of_order(draft, "item was started twice")];
        }
        item.status = ItemStatus::InProgress;
        draft.body = EventBody::ItemStarted(ItemEvent { item: item.clone() });
        self.open(item);
        vec![draft]
    }

    fn item_delta(&mut self, delta: ItemDelta, draft: EventDraft) -> Vec<EventDraft> {
        let mut drafts = Vec::new();
        if !self.items.contains_key(&delta.item_id) {
            let item = item_of_delta(&delta);
            drafts.push(EventDraft::agent(EventBody::ItemStarted(ItemEvent { item: item.clone() })).synthetic());
            self.open(item);
        }
        match self.items.get_mut(&delta.item_id) {
            Some(ItemProgress::Open { streamed, .. }) => {
                streamed.push_str(&delta.delta);
                drafts.push(draft);
            }
            _ => drafts.push(out_of_order(draft, "item delta after the item was completed")),
        }
        drafts
    }

    fn item_completed(&mut self, mut item: Item, mut draft: EventDraft) -> Vec<EventDraft> {
        let mut drafts = Vec::new();
        let streamed = match self.items.insert(item.item_id.clone(), ItemProgress::Done) {
            Some(ItemProgress::Done) => return vec![out_of_order(draft, "item was completed twice")],
            Some(ItemProgress::Open { streamed, .. }) => streamed,
            None => {
                let mut started_item = item.clone();
                started_item.status = ItemStatus::InProgress;
                drafts.push(EventDraft::agent(EventBody::ItemStarted(ItemEvent { item: started_item })).synthetic());
                String::new()
            }
        };
        self.started.retain(|id| *id != item.item_id);
        if is_assistant_message(&item) {
            drafts.extend(missing_delta(&item, &streamed));
        }
        fill_content(&mut item.content, streamed);
        if item.status == ItemStatus::InProgress {
            item.status = ItemStatus::Completed;
        }
        draft.body = EventBody::ItemCompleted(ItemEvent { item });
        drafts.push(draft);
        drafts
    }

    fn request_opened(&mut self, id: String, draft: EventDraft) -> Vec<EventDraft> {
        if self.open_requests.contains_key(&id) {
            return vec![out_of_order(draft, "request id was used twice")];
        }
        self.open_requests.insert(id, true);
        vec![draft]
    }

    fn request_resolved(&mut self, id: String, draft: EventDraft) -> Vec<EventDraft> {
        match self.open_requests.get_mut(&id) {
            Some(open) if *open => {
                *open = false;
                vec![draft]
            }
            _ => vec![out_of_order(draft, "answer to a request that is not open")],
        }
    }

    /// Marks a request as answered by the caller, so that the agent cannot withdraw it later.
    fn request_answered(&mut self, id: &str) {
        self.open_requests.insert(id.to_owned(), false);
    }

    fn turn_ended(&mut self, outcome: TurnOutcome) -> Vec<DialogueOutput> {
        let mut outputs: Vec<DialogueOutput> = Vec::new();
        for id in std::mem::take(&mut self.started) {
            if let Some(ItemProgress::Open { item, .. }) = self.items.get(&id) {
                let item = Item { status: ItemStatus::Failed, ..item.clone() };
                let completed_draft =
                    EventDraft::agent(EventBody::ItemCompleted(ItemEvent { item: item.clone() })).synthetic();
                outputs.extend(self.item_completed(item, completed_draft).into_iter().map(DialogueOutput::Event));
            }
        }
        // Requests end with the turn; the caller resolves them.
        self.open_requests.values_mut().for_each(|open| *open = false);
        outputs.push(DialogueOutput::TurnEnded(outcome));
        outputs
    }

    fn open(&mut self, item: Item) {
        self.started.push(item.item_id.clone());
        self.items.insert(item.item_id.clone(), ItemProgress::Open { item, streamed: String::new() });
    }
}

/// Returns the item for a delta whose item was never started.
fn item_of_delta(delta: &ItemDelta) -> Item {
    Item {
        item_id: delta.item_id.clone(),
        native_item_id: delta.native_item_id.clone(),
        parent_id: None,
        kind: ItemKind::Message,
        role: Some(ItemRole::Assistant),
        content: Vec::new(),
        status: ItemStatus::InProgress,
    }
}

fn is_assistant_message(item: &Item) -> bool {
    item.kind == ItemKind::Message && item.role == Some(ItemRole::Assistant)
}

/// Returns the rest of the final text that was not streamed, as one delta.
fn missing_delta(item: &Item, streamed: &str) -> Option<EventDraft> {
    let words: String = item.content.iter().filter_map(words).collect();
    let rest = words.strip_prefix(streamed).filter(|rest| !rest.is_empty())?;
    let (item_id, native_item_id) = (item.item_id.clone(), item.native_item_id.clone());
    let delta = ItemDelta { item_id, native_item_id, delta: rest.to_owned() };
    Some(EventDraft::agent(EventBody::ItemDelta(delta)).synthetic())
}

/// Fills empty content with the streamed text, as reasoning or as a message.
fn fill_content(content: &mut Vec<ContentPart>, streamed: String) {
    if streamed.is_empty() {
        return;
    }
    match content.as_mut_slice() {
        [] => content.push(ContentPart::Text { text: streamed }),
        [ContentPart::Reasoning { text, .. }] if text.is_empty() => *text = streamed,
        _ => {}
    }
}

fn words(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::Text { text } | ContentPart::Reasoning { text, .. } => Some(text),
        _ => None,
    }
}

fn out_of_order(draft: EventDraft, error: &str) -> EventDraft {
    let raw = draft.raw.or_else(|| serde_json::to_value(&draft.body).ok()).unwrap_or(Value::Null);
    let body = AgentUnparsed { error: error.to_owned(), location: "stdout".to_owned(), raw_hash: None };
    EventDraft { body: EventBody::AgentUnparsed(body), raw: Some(raw::bounded(raw)), ..draft }
}

/// A dialogue whose events are in strict order.
pub struct NormalizedDialogue {
    native: Box<dyn Dialogue>,
    normalizer: EventNormalizer,
}

impl NormalizedDialogue {
    /// Wraps `native`.
    pub fn new(native: Box<dyn Dialogue>) -> Self {
        Self { native, normalizer: EventNormalizer::new() }
    }

    /// Completes all open items as failed, after the agent has exited.
    pub fn close_open_items(&mut self) -> Vec<DialogueOutput> {
        let mut outputs = self.normalizer.apply(DialogueOutput::TurnEnded(TurnOutcome::Failed));
        outputs.retain(|output| matches!(output, DialogueOutput::Event(_)));
        outputs
    }

    fn order(&mut self, outputs: Vec<DialogueOutput>) -> Vec<DialogueOutput> {
        outputs.into_iter().flat_map(|output| self.normalizer.apply(output)).collect()
    }
}

impl Dialogue for NormalizedDialogue {
    fn open(&mut self) -> Vec<DialogueOutput> {
        let outputs = self.native.open();
        self.order(outputs)
    }

    fn send_prompt(&mut self, prompt: &Prompt) -> Vec<DialogueOutput> {
        let outputs = self.native.send_prompt(prompt);
        self.order(outputs)
    }

    fn read_line(&mut self, line: &[u8]) -> Vec<DialogueOutput> {
        let outputs = self.native.read_line(line);
        self.order(outputs)
    }

    fn answer_permission(&mut self, id: &PermissionId, reply: PermissionReply) -> Vec<DialogueOutput> {
        self.normalizer.request_answered(id.as_str());
        let outputs = self.native.answer_permission(id, reply);
        self.order(outputs)
    }

    fn answer_question(&mut self, id: &QuestionId, answers: Option<&[Vec<String>]>) -> Vec<DialogueOutput> {
        self.normalizer.request_answered(id.as_str());
        let outputs = self.native.answer_question(id, answers);
        self.order(outputs)
    }

    fn interrupt(&mut self) -> Vec<DialogueOutput> {
        let outputs = self.native.interrupt();
        self.order(outputs)
    }
}
