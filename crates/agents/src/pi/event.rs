//! Events that pi prints.

use protocol::{ContentPart, ItemStatus, TurnOutcome};
use serde_json::{Value, json};

use super::PiDialogue;
use crate::diff;
use crate::transcript::{TextKind, ToolOutcome};

impl PiDialogue {
    pub(super) fn handle_message(&mut self, value: Value) {
        match value["type"].as_str().unwrap_or_default() {
            "response" => self.response(value),
            "session" => self.name_session(&value["id"]),
            "message_update" => self.message_update(value),
            "message_end" => self.message_end(&value["message"]),
            "tool_execution_start" => {
                let (call, name) = (text(&value["toolCallId"]), text(&value["toolName"]));
                self.transcript.start_call(call, name, &value["args"], None);
            }
            "tool_execution_end" => self.tool_ended(&value),
            "agent_end" => self.agent_ended(&value),
            "auto_retry_start" => {
                self.retry_probe = None;
                self.error = None;
                let detail = format!("attempt {} of {}", value["attempt"], value["maxAttempts"]);
                self.transcript.push_status("Retrying", Some(detail), Vec::new());
            }
            "auto_retry_end" if value["success"] == false => self.end_turn(TurnOutcome::Failed),
            "compaction_start" => self.transcript.push_status("Compacting", None, Vec::new()),
            // Ignored: other events contain the same information, and the complete tool result follows later.
            "agent_start"
            | "turn_start"
            | "turn_end"
            | "message_start"
            | "tool_execution_update"
            | "auto_retry_end"
            | "compaction_end"
            | "thinking_level_changed"
            | "queue_update" => {}
            _ => self.transcript.record_unknown(value),
        }
    }

    fn response(&mut self, value: Value) {
        if value["success"] == false {
            let words = value["error"].as_str().unwrap_or("a command failed");
            self.transcript.push_error(words, None, None);
            if value["command"] == "prompt" {
                self.end_turn(TurnOutcome::Failed);
            }
            return;
        }
        if self.retry_probe.as_deref().is_some_and(|probe| value["id"] == probe) {
            return self.end_turn(TurnOutcome::Failed);
        }
        if value["command"] == "get_state" {
            self.name_session(&value["data"]["sessionId"]);
        }
    }

    fn name_session(&mut self, id: &Value) {
        if let Some(id) = id.as_str() {
            self.transcript.set_native_session(id);
        }
    }

    fn message_update(&mut self, value: Value) {
        let event = &value["assistantMessageEvent"];
        let key = event["contentIndex"].to_string();
        match event["type"].as_str().unwrap_or_default() {
            "text_start" => self.transcript.append_text(&key, TextKind::Message, None, ""),
            "thinking_start" => self.transcript.append_text(&key, TextKind::Thought, None, ""),
            "text_delta" => self.transcript.append_text(&key, TextKind::Message, None, text(&event["delta"])),
            "thinking_delta" => self.transcript.append_text(&key, TextKind::Thought, None, text(&event["delta"])),
            "text_end" => {
                self.transcript.complete_text(
                    &key,
                    TextKind::Message,
                    None,
                    text(&event["content"]),
                    ItemStatus::Completed,
                );
            }
            "thinking_end" => {
                self.transcript.complete_text(
                    &key,
                    TextKind::Thought,
                    None,
                    text(&event["content"]),
                    ItemStatus::Completed,
                );
            }
            "start" | "toolcall_start" | "toolcall_delta" | "toolcall_end" | "done" | "error" => {}
            _ => self.transcript.record_unknown(value),
        }
    }

    fn message_end(&mut self, message: &Value) {
        if message["role"] != "assistant" {
            return;
        }
        let whole = matches!(message["stopReason"].as_str(), Some("stop" | "toolUse" | "length"));
        self.transcript.finish_texts(if whole { ItemStatus::Completed } else { ItemStatus::Failed });
        if message["stopReason"] == "error" {
            self.error = Some(message["errorMessage"].as_str().unwrap_or("the model failed").to_owned());
        }
    }

    fn tool_ended(&mut self, value: &Value) {
        let result = &value["result"];
        let words = result["content"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
        let failed = value["isError"] == true;
        let parts = self.changed_file(value).filter(|_| !failed).into_iter().collect();
        let outcome = ToolOutcome { output: words.collect(), failed, parts };
        self.transcript.finish_call(text(&value["toolCallId"]), outcome);
    }

    /// Returns the changed file. Only the result of an edit has a diff, and only the call has the path.
    fn changed_file(&self, value: &Value) -> Option<ContentPart> {
        let diff_lines = value["result"]["details"]["diff"].as_str().filter(|_| value["toolName"] == "edit")?;
        let path = self.transcript.call_arguments(text(&value["toolCallId"]))?["path"].as_str()?;
        Some(diff::file_patched(path, &diff::from_numbered_lines(diff_lines)))
    }

    fn agent_ended(&mut self, value: &Value) {
        let last = value["messages"].as_array().and_then(|messages| messages.last());
        match last.and_then(|message| message["stopReason"].as_str()) {
            Some("aborted") => self.end_turn(TurnOutcome::Interrupted),
            // After an error pi either stops or retries. The response to this command tells which.
            Some("error") => self.retry_probe = Some(self.command("get_state", json!({}))),
            _ => self.end_turn(TurnOutcome::Completed),
        }
    }

    fn end_turn(&mut self, outcome: TurnOutcome) {
        self.retry_probe = None;
        if let Some(words) = self.error.take().filter(|_| outcome == TurnOutcome::Failed) {
            self.transcript.push_error(words, Some("upstream_error"), None);
        }
        self.transcript.end_turn(outcome);
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
