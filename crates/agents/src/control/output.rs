//! Messages that the program prints.

use protocol::{ContentPart, ItemId, ItemKind, ItemRole, ItemStatus, TurnOutcome};
use serde_json::{Value, json};

use super::ControlDialogue;
use crate::diff;
use crate::transcript::{TextKind, ToolOutcome};

impl ControlDialogue {
    pub(super) fn handle_message(&mut self, value: Value) {
        match value["type"].as_str().unwrap_or_default() {
            "system" => self.system(value),
            "stream_event" => self.stream_event(value),
            "assistant" => self.assistant(&value),
            "user" => self.user(&value),
            "result" => self.result(&value),
            "control_request" => self.control_request(value),
            "control_cancel_request" => self.control_cancel(&value),
            "control_response" => self.control_response(&value),
            "keep_alive" => {}
            _ => self.transcript.record_unknown(value),
        }
    }

    fn system(&mut self, value: Value) {
        match value["subtype"].as_str().unwrap_or_default() {
            "init" => self.name_session(&value["session_id"]),
            // Ignored: progress between model calls, denials, which the tool result repeats, and the state of
            // sub-agents, which their call reports.
            "thinking_tokens" | "permission_denied" | "task_started" | "task_updated" | "background_tasks_changed" => {}
            "task_progress" => self.sub_agent(&value, &value["description"]),
            "task_notification" => {
                let status = if value["data"].is_object() { &value["data"]["status"] } else { &value["status"] };
                self.sub_agent(&value, status);
            }
            "status" if matches!(value["status"].as_str(), None | Some("requesting")) => {}
            "status" => self.transcript.push_status(value["status"].as_str().unwrap_or_default(), None, Vec::new()),
            "api_retry" | "retry" => {
                let detail = format!("attempt {} after {}", value["attempt"], value["error_status"]);
                self.transcript.push_status("Retrying", Some(detail), Vec::new());
            }
            "informational" => {
                let words = value["content"].as_str().map(str::to_owned);
                self.transcript.push_status("Note", words, Vec::new());
            }
            "compact_boundary" => self.transcript.push_status("Compacted", None, Vec::new()),
            _ => self.transcript.record_unknown(value),
        }
    }

    /// Emits the status of a sub-agent.
    fn sub_agent(&mut self, value: &Value, words: &Value) {
        let call = value["tool_use_id"].as_str().or(value["data"]["tool_use_id"].as_str());
        let parent = call.and_then(|call| self.transcript.call_item(call));
        self.transcript.push_status_under(parent, "Sub-agent", words.as_str().map(str::to_owned), Vec::new());
    }

    /// Handles a streamed fragment of a model response. The following `assistant` line contains the whole response.
    fn stream_event(&mut self, value: Value) {
        let event = &value["event"];
        let parent = self.parent(&value);
        match event["type"].as_str().unwrap_or_default() {
            "content_block_start" => {
                self.withheld_text = self.variant.error_prefix.map(|_| String::new());
                if let Some(kind) = text_kind(&event["content_block"]["type"]).filter(|_| self.withheld_text.is_none())
                {
                    self.transcript.append_text("block", kind, parent, "");
                }
            }
            "content_block_delta" => {
                let delta = &event["delta"];
                let words = match delta["type"].as_str().unwrap_or_default() {
                    "text_delta" => Some((TextKind::Message, &delta["text"])),
                    "thinking_delta" => Some((TextKind::Thought, &delta["thinking"])),
                    _ => None,
                };
                if let Some((kind, words)) = words {
                    let words = self.withhold_error_text(words.as_str().unwrap_or_default());
                    if !words.is_empty() {
                        self.transcript.append_text("block", kind, parent, &words);
                    }
                }
            }
            "content_block_stop" | "message_start" | "message_delta" | "message_stop" | "ping" | "goal_state" => {}
            _ => self.transcript.record_unknown(value),
        }
    }

    /// Returns the text that can be emitted now. Text that may be an error message is withheld.
    fn withhold_error_text(&mut self, words: &str) -> String {
        let (Some(prefix), Some(held)) = (self.variant.error_prefix, &mut self.withheld_text) else {
            return words.to_owned();
        };
        held.push_str(words);
        if held.starts_with(prefix) || prefix.starts_with(held.as_str()) {
            return String::new();
        }
        self.withheld_text.take().unwrap_or_default()
    }

    fn assistant(&mut self, value: &Value) {
        let parent = self.parent(value);
        if value["error"].is_string() || value["is_api_error_message"] == true {
            let words = value.pointer("/message/content/0/text").and_then(Value::as_str).unwrap_or("the model failed");
            if let Some(parent) = parent {
                // The agent continues without the sub-agent.
                return self.transcript.push_status_under(
                    Some(parent),
                    "Sub-agent failed",
                    Some(words.to_owned()),
                    Vec::new(),
                );
            }
            let details = json!({ "status": value["api_error_status"], "error": value["error"] });
            return self.report_error(words, Some(details));
        }
        let status = if value["aborted"] == true { ItemStatus::Failed } else { ItemStatus::Completed };
        for block in value.pointer("/message/content").and_then(Value::as_array).into_iter().flatten() {
            self.block(block, parent.clone(), status);
        }
    }

    fn block(&mut self, block: &Value, parent: Option<ItemId>, status: ItemStatus) {
        match block["type"].as_str().unwrap_or_default() {
            "text" => {
                let text = block["text"].as_str().unwrap_or_default();
                match self.variant.error_prefix {
                    Some(prefix) if text.starts_with(prefix) => self.report_error(text, None),
                    _ => self.transcript.complete_text(
                        "block",
                        TextKind::Message,
                        parent,
                        text,
                        self.text_status(status),
                    ),
                }
            }
            "thinking" => {
                let text = block["thinking"].as_str().unwrap_or_default();
                self.transcript.complete_text("block", TextKind::Thought, parent, text, self.text_status(status));
            }
            "redacted_thinking" => {}
            "tool_use" => {
                let name = block["name"].as_str().unwrap_or_default();
                let call_id = block["id"].as_str().unwrap_or_default();
                self.transcript.start_call(call_id, name, &block["input"], parent);
            }
            _ => self.transcript.record_unknown(block.clone()),
        }
    }

    /// Text that was interrupted counts as failed.
    fn text_status(&self, status: ItemStatus) -> ItemStatus {
        if self.interrupting { ItemStatus::Failed } else { status }
    }

    fn user(&mut self, value: &Value) {
        let parent = self.parent(value);
        let content = &value["message"]["content"];
        for block in content.as_array().into_iter().flatten() {
            match block["type"].as_str().unwrap_or_default() {
                "tool_result" => self.tool_result(block, &value["tool_use_result"]),
                // Informs the model about an interrupt; the end of the turn informs the user.
                "text" if block["text"].as_str().is_some_and(|text| text.starts_with("[Request interrupted")) => {}
                "text" => self.push_remark(block["text"].as_str().unwrap_or_default(), parent.clone()),
                _ => self.transcript.record_unknown(block.clone()),
            }
        }
        if let Some(text) = content.as_str() {
            self.push_remark(text, parent);
        }
    }

    /// Emits text that the program adds in the role of the user. Below `parent` it is the prompt of a sub-agent.
    fn push_remark(&mut self, text: &str, parent: Option<ItemId>) {
        let mut item = self.transcript.new_item(ItemKind::System, ItemRole::User);
        item.parent_id = parent;
        item.content = vec![ContentPart::Text { text: text.to_owned() }];
        self.transcript.start_item(&item);
        self.transcript.complete_item(item, ItemStatus::Completed);
    }

    fn tool_result(&mut self, block: &Value, details: &Value) {
        let failed = block["is_error"] == true;
        let parts = if failed { Vec::new() } else { file(details).into_iter().collect() };
        let outcome = ToolOutcome { output: text(&block["content"]), failed, parts };
        self.transcript.finish_call(block["tool_use_id"].as_str().unwrap_or_default(), outcome);
    }

    fn result(&mut self, value: &Value) {
        let reason = value["terminal_reason"].as_str().unwrap_or_default();
        let failed = value["is_error"] == true || value["subtype"].as_str().is_some_and(|word| word != "success");
        let outcome = if reason.starts_with("aborted") || (failed && self.interrupting) {
            TurnOutcome::Interrupted
        } else if failed {
            let words = value["result"].as_str().or(value.pointer("/error/message").and_then(Value::as_str));
            let words = words.or(value.pointer("/errors/0").and_then(Value::as_str)).unwrap_or("the turn failed");
            self.report_error(words, Some(json!({ "status": value["api_error_status"] })));
            TurnOutcome::Failed
        } else {
            TurnOutcome::Completed
        };
        self.permissions.clear();
        self.questions.clear();
        self.interrupting = false;
        self.error_reported = false;
        self.transcript.end_turn(outcome);
    }

    fn report_error(&mut self, words: &str, details: Option<Value>) {
        if !self.error_reported {
            self.error_reported = true;
            self.transcript.push_error(words, Some("upstream_error"), details);
        }
    }

    fn control_response(&mut self, value: &Value) {
        let response = &value["response"];
        if response["subtype"] == "error" {
            let words = response["error"].as_str().unwrap_or("a control request failed");
            return self.transcript.push_error(words, None, None);
        }
        self.name_session(&response["response"]["session_id"]);
    }

    fn parent(&self, value: &Value) -> Option<ItemId> {
        value["parent_tool_use_id"].as_str().and_then(|call| self.transcript.call_item(call))
    }
}

/// Returns the type of a message, with its subtype if it has one.
pub(super) fn kind(value: &Value) -> String {
    let name = value["type"].as_str().unwrap_or_default();
    let case = match name {
        "system" => &value["subtype"],
        "stream_event" => &value["event"]["type"],
        "control_request" => &value["request"]["subtype"],
        _ => return name.to_owned(),
    };
    format!("{name}/{}", case.as_str().unwrap_or_default())
}

fn text_kind(kind: &Value) -> Option<TextKind> {
    match kind.as_str() {
        Some("text") => Some(TextKind::Message),
        Some("thinking") => Some(TextKind::Thought),
        _ => None,
    }
}

/// Returns the text of a result, which is a string or a list of text blocks.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n"),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Returns the file that an edit or write changed.
fn file(details: &Value) -> Option<ContentPart> {
    let path = details["filePath"].as_str()?;
    let hunks = details["structuredPatch"].as_array()?;
    if hunks.is_empty() {
        return Some(diff::file_written(path, "", details["content"].as_str()?));
    }
    Some(diff::file_patched(path, &diff::hunks(hunks)))
}
