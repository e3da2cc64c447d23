//! Plans: the steps that an agent intends to take.
//!
//! A plan is a status item with its steps as JSON, emitted while the tool call that made the plan is open.

use protocol::{ContentPart, EventBody, Item, ItemEvent, ItemId, ItemKind, ItemRole, ItemStatus};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Transcript, tool_call};

/// The name of tools for to-do lists, in lower case and without `_`.
const TODO_TOOL: &str = "todowrite";

/// A step of a plan.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlanStep {
    text: Option<String>,
    status: Option<String>,
}

impl PlanStep {
    /// Returns a step from the text and status that an agent reported.
    pub(crate) fn new(text: Option<&str>, status: Option<&str>) -> Self {
        Self { text: text.map(str::to_owned), status: status.map(str::to_owned) }
    }

    fn is_completed(&self) -> bool {
        self.status.as_deref() == Some("completed")
    }
}

impl Transcript {
    /// Emits a plan with `steps` of the form `[{text, status}]`.
    pub(crate) fn push_plan(&mut self, steps: &[PlanStep]) {
        self.push_plan_under(None, steps);
    }

    /// Emits a plan below `parent`.
    pub(crate) fn push_plan_under(&mut self, parent: Option<ItemId>, steps: &[PlanStep]) {
        let done = steps.iter().filter(|step| step.is_completed()).count();
        let detail = format!("{done} of {} done", steps.len());
        self.push_status_under(parent, "Plan", Some(detail), vec![ContentPart::Json { json: json!(steps) }]);
    }

    /// Emits a plan together with a synthetic call of the tool `name`, for an agent that reports only the plan.
    pub(crate) fn push_plan_with_call(&mut self, parent: Option<ItemId>, name: &str, steps: &[PlanStep]) {
        self.finish_texts_under(parent.as_ref(), ItemStatus::Completed);
        let mut made = self.new_item(ItemKind::ToolCall, ItemRole::Assistant);
        let call_id = made.item_id.to_string();
        made.parent_id.clone_from(&parent);
        made.content = vec![tool_call::content(&call_id, name, &json!({ "steps": steps }))];
        let mut result = Item { kind: ItemKind::ToolResult, role: Some(ItemRole::Tool), ..made.clone() };
        self.push_synthetic(EventBody::ItemStarted(ItemEvent { item: made.clone() }));
        self.push_plan_under(parent, steps);
        result.item_id = self.next_item_id();
        result.parent_id = Some(made.item_id.clone());
        result.content = vec![ContentPart::ToolResult { call_id, output: "the plan was updated".to_owned() }];
        made.status = ItemStatus::Completed;
        self.push_synthetic(EventBody::ItemCompleted(ItemEvent { item: made }));
        self.push_synthetic(EventBody::ItemStarted(ItemEvent { item: result.clone() }));
        result.status = ItemStatus::Completed;
        self.push_synthetic(EventBody::ItemCompleted(ItemEvent { item: result }));
    }
}

/// Returns the steps of the plan in a tool call; `None` if `name` is not a tool for plans.
pub(super) fn steps(name: &str, arguments: &Value) -> Option<Vec<PlanStep>> {
    if name.to_lowercase().replace('_', "") != TODO_TOOL {
        return None;
    }
    let step = |todo: &Value| PlanStep::new(todo["content"].as_str(), todo["status"].as_str());
    Some(arguments["todos"].as_array()?.iter().map(step).collect())
}
