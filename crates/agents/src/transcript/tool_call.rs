//! Tool calls. Each call is an item with exactly one result below it.

use protocol::{ContentPart, EventBody, EventDraft, Item, ItemEvent, ItemId, ItemKind, ItemRole, ItemStatus};
use serde_json::Value;

use super::{MAX_ENDED_CALLS, Transcript, plan};
use crate::{DialogueOutput, diff};

/// A call without a result so far.
#[derive(Debug)]
pub(super) struct OpenCall {
    call_id: String,
    name: String,
    arguments: Value,
    item: Item,
    /// Changed files that were reported before the result.
    files: Vec<ContentPart>,
}

/// The result of a tool call.
#[derive(Debug, Default)]
pub(crate) struct ToolOutcome {
    /// The output for the model.
    pub(crate) output: String,
    /// Whether the call failed or was denied.
    pub(crate) failed: bool,
    /// Files that the tool read or changed, and other content of the result.
    pub(crate) parts: Vec<ContentPart>,
}

impl Transcript {
    /// Starts a tool call. If the call is already open, updates its input.
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

    /// Updates the input of an open call. The new input is emitted when the call ends.
    pub(crate) fn update_call(&mut self, call_id: &str, arguments: &Value) {
        let richer = |old: &Value| arguments.as_object().is_some_and(|new| !new.is_empty()) && old != arguments;
        if let Some(call) = self.calls.iter_mut().find(|call| call.call_id == call_id)
            && richer(&call.arguments)
        {
            call.arguments = arguments.clone();
            call.item.content = vec![content(call_id, &call.name, arguments)];
        }
    }

    /// Sets the files that an open call will change, for its result.
    pub(crate) fn set_call_files(&mut self, call_id: &str, files: Vec<ContentPart>) {
        if files.is_empty() {
            return;
        }
        if let Some(call) = self.calls.iter_mut().find(|call| call.call_id == call_id) {
            call.files = files;
        }
    }

    /// Returns whether an open call changes the file at `path`.
    pub(crate) fn is_file_of_open_call(&self, path: &str) -> bool {
        let touches = |part: &ContentPart| matches!(part, ContentPart::FileRef { path: file, .. } if file == path);
        self.calls.iter().any(|call| call.files.iter().any(touches))
    }

    /// Returns whether a call has no result yet.
    pub(crate) fn is_call_open(&self, call_id: &str) -> bool {
        self.calls.iter().any(|call| call.call_id == call_id)
    }

    /// Returns the known input of an open call.
    pub(crate) fn call_arguments(&self, call_id: &str) -> Option<&Value> {
        self.calls.iter().find(|call| call.call_id == call_id).map(|call| &call.arguments)
    }

    /// Returns the item of an open or ended call, which is the parent of items inside the call.
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

    /// Completes a call and emits its result as an item below it.
    pub(crate) fn finish_call(&mut self, call_id: &str, outcome: ToolOutcome) {
        let status = if outcome.failed { ItemStatus::Failed } else { ItemStatus::Completed };
        let call = self.calls.iter().position(|call| call.call_id == call_id).map(|at| self.calls.remove(at));
        let mut result = self.new_item(ItemKind::ToolResult, ItemRole::Tool);
        let (mut parts, mut reported) = (outcome.parts, true);
        if let Some(call) = call {
            result.parent_id = Some(call.item.item_id.clone());
            self.remember_ended_call(call_id, &call.item.item_id);
            if parts.is_empty() && !outcome.failed {
                parts = call.files;
            }
            if parts.is_empty() && !outcome.failed {
                parts.extend(diff::change_from_call(&call.name, &call.arguments));
                reported = parts.is_empty();
            }
            if let Some(steps) = plan::steps(&call.name, &call.arguments).filter(|_| !outcome.failed) {
                self.push_plan_under(call.item.parent_id.clone(), &steps);
            }
            self.complete_item(call.item, status);
        }
        result.content = vec![ContentPart::ToolResult { call_id: call_id.to_owned(), output: outcome.output }];
        result.content.extend(parts);
        self.start_item(&result);
        if reported {
            return self.complete_item(result, status);
        }
        // The agent did not report the changed file, so the change is derived from the call and marked synthetic.
        result.status = status;
        self.push_synthetic(EventBody::ItemCompleted(ItemEvent { item: result }));
    }

    /// Fails all calls that are open at the end of a turn.
    pub(super) fn fail_open_calls(&mut self) {
        // Inner calls started last and end first.
        while let Some(OpenCall { call_id, mut item, .. }) = self.calls.pop() {
            let parent = item.item_id.clone();
            self.remember_ended_call(&call_id, &parent);
            item.status = ItemStatus::Failed;
            self.push_synthetic(EventBody::ItemCompleted(ItemEvent { item }));
            let mut result = self.new_item(ItemKind::ToolResult, ItemRole::Tool);
            result.parent_id = Some(parent);
            let output = "the turn ended before the tool returned".to_owned();
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
