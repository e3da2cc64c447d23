//! Tool calls: each is an item, and each gets exactly one result below it.

use protocol::{ContentPart, EventBody, EventDraft, Item, ItemEvent, ItemId, ItemKind, ItemRole, ItemStatus};
use serde_json::Value;

use super::{MAX_ENDED_CALLS, Transcript, plan};
use crate::{DialogueOutput, diff};

/// A call whose result has not come.
#[derive(Debug)]
pub(super) struct OpenCall {
    call_id: String,
    name: String,
    arguments: Value,
    item: Item,
    /// Files that were announced before the result.
    files: Vec<ContentPart>,
}

/// What a tool gave back.
#[derive(Debug, Default)]
pub(crate) struct ToolOutcome {
    /// As the agent was told.
    pub(crate) output: String,
    /// Whether it failed or was refused.
    pub(crate) failed: bool,
    /// Files it read or changed, and whatever else goes with the result.
    pub(crate) parts: Vec<ContentPart>,
}

impl Transcript {
    /// A tool call begins. A second beginning of an open call only tells more of it.
    pub(crate) fn start_call(&mut self, call_id: &str, name: &str, arguments: &Value, parent: Option<ItemId>) {
        self.finish_texts_under(parent.as_ref(), ItemStatus::Completed);
        if self.is_call_open(call_id) {
            return self.update_call(call_id, arguments);
        }
        let mut item = self.new_item(ItemKind::ToolCall, ItemRole::Assistant);
        item.native_item_id = Some(call_id.to_owned());
        item.parent_id = parent;
        item.content = vec![content(call_id, name, arguments)];
        self.start_item(&item);
        let (call_id, name, arguments) = (call_id.to_owned(), name.to_owned(), arguments.clone());
        self.calls.push(OpenCall { call_id, name, arguments, item, files: Vec::new() });
    }

    /// More is known of a call's input; it is told when the call ends.
    pub(crate) fn update_call(&mut self, call_id: &str, arguments: &Value) {
        let richer = |old: &Value| arguments.as_object().is_some_and(|new| !new.is_empty()) && old != arguments;
        if let Some(call) = self.calls.iter_mut().find(|call| call.call_id == call_id)
            && richer(&call.arguments)
        {
            call.arguments = arguments.clone();
            call.item.content = vec![content(call_id, &call.name, arguments)];
        }
    }

    /// Files that an open call is going to change, for its result.
    pub(crate) fn set_call_files(&mut self, call_id: &str, files: Vec<ContentPart>) {
        if files.is_empty() {
            return;
        }
        if let Some(call) = self.calls.iter_mut().find(|call| call.call_id == call_id) {
            call.files = files;
        }
    }

    /// Whether an open call is about the file at `path`.
    pub(crate) fn is_file_of_open_call(&self, path: &str) -> bool {
        let touches = |part: &ContentPart| matches!(part, ContentPart::FileRef { path: file, .. } if file == path);
        self.calls.iter().any(|call| call.files.iter().any(touches))
    }

    /// Whether a call waits for its result.
    pub(crate) fn is_call_open(&self, call_id: &str) -> bool {
        self.calls.iter().any(|call| call.call_id == call_id)
    }

    /// The input of an open call, as far as it is known.
    pub(crate) fn call_arguments(&self, call_id: &str) -> Option<&Value> {
        self.calls.iter().find(|call| call.call_id == call_id).map(|call| &call.arguments)
    }

    /// The item of a call, open or ended: the parent of what happens inside it.
    pub(crate) fn call_item(&self, call_id: &str) -> Option<ItemId> {
        let open = self.calls.iter().find(|call| call.call_id == call_id).map(|call| &call.item.item_id);
        let ended = || self.ended_calls.iter().rev().find(|(id, _)| id == call_id).map(|(_, item)| item);
        open.or_else(ended).cloned()
    }

    fn remember_ended_call(&mut self, call_id: &str, item: &ItemId) {
        if self.ended_calls.len() == MAX_ENDED_CALLS {
            self.ended_calls.pop_front();
        }
        self.ended_calls.push_back((call_id.to_owned(), item.clone()));
    }

    /// A tool call ends: the call's item completes and its result follows as an item below it.
    pub(crate) fn finish_call(&mut self, call_id: &str, outcome: ToolOutcome) {
        let status = if outcome.failed { ItemStatus::Failed } else { ItemStatus::Completed };
        let call = self.calls.iter().position(|call| call.call_id == call_id).map(|at| self.calls.remove(at));
        let mut result = self.new_item(ItemKind::ToolResult, ItemRole::Tool);
        let (mut parts, mut told) = (outcome.parts, true);
        if let Some(call) = call {
            result.parent_id = Some(call.item.item_id.clone());
            self.remember_ended_call(call_id, &call.item.item_id);
            if parts.is_empty() && !outcome.failed {
                parts = call.files;
            }
            if parts.is_empty() && !outcome.failed {
                parts.extend(diff::change_from_call(&call.name, &call.arguments));
                told = parts.is_empty();
            }
            if let Some(steps) = plan::steps(&call.name, &call.arguments).filter(|_| !outcome.failed) {
                self.push_plan_under(call.item.parent_id.clone(), steps);
            }
            self.complete_item(call.item, status);
        }
        result.content = vec![ContentPart::ToolResult { call_id: call_id.to_owned(), output: outcome.output }];
        result.content.extend(parts);
        self.start_item(&result);
        if told {
            return self.complete_item(result, status);
        }
        // The agent told what it did and not what became of the file: that is read off the call.
        result.status = status;
        self.push_synthetic(EventBody::ItemCompleted(ItemEvent { item: result }));
    }

    /// The turn is over and no result will come.
    pub(super) fn fail_open_calls(&mut self) {
        // Inner calls began last and end first.
        while let Some(OpenCall { call_id, mut item, .. }) = self.calls.pop() {
            let parent = item.item_id.clone();
            self.remember_ended_call(&call_id, &parent);
            item.status = ItemStatus::Failed;
            self.push_synthetic(EventBody::ItemCompleted(ItemEvent { item }));
            let mut result = self.new_item(ItemKind::ToolResult, ItemRole::Tool);
            result.parent_id = Some(parent);
            let output = "the turn ended before the result came".to_owned();
            result.content = vec![ContentPart::ToolResult { call_id, output }];
            self.push_synthetic(EventBody::ItemStarted(ItemEvent { item: result.clone() }));
            result.status = ItemStatus::Failed;
            self.push_synthetic(EventBody::ItemCompleted(ItemEvent { item: result }));
        }
    }

    pub(super) fn push_synthetic(&mut self, body: EventBody) {
        self.output.push(DialogueOutput::Event(EventDraft::agent(body).synthetic()));
    }
}

pub(super) fn content(call_id: &str, name: &str, arguments: &Value) -> ContentPart {
    ContentPart::ToolCall { name: name.to_owned(), arguments: arguments.to_string(), call_id: call_id.to_owned() }
}
