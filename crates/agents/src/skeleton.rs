//! An outline of a conversation without its texts.
//!
//! Agents that did the same have the same skeleton. Ids are numbered in order of appearance. Texts, times, provider
//! data and the `synthetic` mark are left out, and successive deltas of an item become one line.

use std::collections::HashMap;

use protocol::{ContentPart, EventBody, EventDraft, Item};
use serde_json::Value;

use crate::DialogueOutput;

/// Returns one line for each output, without the lines that are sent to the agent.
pub fn skeleton<'a>(outputs: impl IntoIterator<Item = &'a DialogueOutput>) -> Vec<String> {
    let mut ids = IdNumbers::default();
    let mut lines: Vec<String> = Vec::new();
    for output in outputs {
        let line = match output {
            DialogueOutput::Event(draft) => ids.describe(draft),
            DialogueOutput::TurnEnded(outcome) => format!("turn.ended {}", word(outcome)),
            DialogueOutput::NativeSession(_) | DialogueOutput::Send(_) => continue,
        };
        if !(line.starts_with("item.delta") && lines.last() == Some(&line)) {
            lines.push(line);
        }
    }
    lines
}

/// Ids, numbered in the order of their first appearance.
#[derive(Default)]
struct IdNumbers(HashMap<String, usize>);

impl IdNumbers {
    fn number(&mut self, id: &str) -> usize {
        let next = self.0.len() + 1;
        *self.0.entry(id.to_owned()).or_insert(next)
    }

    fn describe(&mut self, draft: &EventDraft) -> String {
        match &draft.body {
            EventBody::ItemStarted(event) => format!("item.started {}", self.item(&event.item)),
            EventBody::ItemCompleted(event) => format!("item.completed {}", self.item(&event.item)),
            EventBody::ItemDelta(delta) => format!("item.delta #{}", self.number(delta.item_id.as_str())),
            EventBody::PermissionRequested(request) | EventBody::PermissionResolved(request) => {
                let number = self.number(request.permission_id.as_str());
                format!("{} #{number} {}", kind(draft), word(&request.status))
            }
            EventBody::QuestionRequested(request) | EventBody::QuestionResolved(request) => {
                let number = self.number(request.question_id.as_str());
                format!("{} #{number} {} of {} options", kind(draft), word(&request.status), request.options.len())
            }
            _ => kind(draft),
        }
    }

    fn item(&mut self, item: &Item) -> String {
        let number = self.number(item.item_id.as_str());
        let parent = item.parent_id.as_ref().map(|id| format!(" in #{}", self.number(id.as_str()))).unwrap_or_default();
        let role = item.role.map(|role| word(&role)).unwrap_or_default();
        let parts: Vec<&str> = item.content.iter().map(content_part_name).collect();
        format!("#{number}{parent} {} {role} {} [{}]", word(&item.kind), word(&item.status), parts.join(", "))
    }
}

fn kind(draft: &EventDraft) -> String {
    match serde_json::to_value(&draft.body) {
        Ok(Value::Object(body)) => body.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// Returns the name of an enum variant on the wire.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Returns the name of a content part in outlines; a file with a diff has a name of its own.
pub fn content_part_name(part: &ContentPart) -> &'static str {
    match part {
        ContentPart::Text { .. } => "text",
        ContentPart::Json { .. } => "json",
        ContentPart::ToolCall { .. } => "tool_call",
        ContentPart::ToolResult { .. } => "tool_result",
        ContentPart::FileRef { diff: Some(_), .. } => "file_ref with diff",
        ContentPart::FileRef { diff: None, .. } => "file_ref",
        ContentPart::Reasoning { .. } => "reasoning",
        ContentPart::Image { .. } => "image",
        ContentPart::Status { .. } => "status",
    }
}
