//! `session/update`: words, thoughts, calls and plans.

use protocol::{ContentPart, ItemStatus};
use serde_json::{Value, json};

use super::{AcpDialogue, Notice};
use crate::diff;
use crate::transcript::{Speech, ToolOutcome};

impl AcpDialogue {
    pub(super) fn update(&mut self, value: Value) {
        let update = &value["params"]["update"];
        // What an old session was is in the journal already.
        if self.replaying {
            if self.session.is_some() && update["sessionUpdate"] == "available_commands_update" {
                self.replaying = false;
                self.start_prompts();
            }
            return;
        }
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => self.chunk(Speech::Message, update),
            "agent_thought_chunk" => self.chunk(Speech::Thought, update),
            "tool_call" | "tool_call_update" => self.call(update),
            "plan" => {
                self.settle_refused();
                let entries = update["entries"].as_array().into_iter().flatten();
                let step = |entry: &Value| json!({ "text": entry["content"], "status": entry["status"] });
                self.transcript.plan(entries.map(step).collect());
            }
            // Menus, titles and counters: the gateway counts for itself.
            "available_commands_update"
            | "config_option_update"
            | "current_mode_update"
            | "session_info_update"
            | "usage_update"
            | "user_message_chunk" => {}
            _ => self.transcript.unknown(value),
        }
    }

    fn chunk(&mut self, speech: Speech, update: &Value) {
        self.settle_refused();
        let Some(words) = update["content"]["text"].as_str() else {
            return self.transcript.unknown(update.clone());
        };
        let notice = self.quirks.notice.filter(|_| speech == Speech::Message).and_then(|notice| notice(words));
        if let Some(notice) = notice {
            return self.take_notice(notice, words);
        }
        let kind = if speech == Speech::Thought { "thought" } else { "message" };
        let key = format!("{kind}:{}", update["messageId"].as_str().unwrap_or_default());
        self.transcript.finish_other_speech(&key);
        self.transcript.say(&key, speech, None, words);
    }

    fn take_notice(&mut self, notice: Notice, words: &str) {
        match notice {
            Notice::Error => {
                self.model_failed = true;
                self.transcript.finish_speech(ItemStatus::Failed);
                self.transcript.error(words, Some("upstream_error"), None);
            }
            Notice::Retrying => {
                self.transcript.finish_speech(ItemStatus::Failed);
                self.transcript.status("Retrying", Some(words.to_owned()), Vec::new());
            }
            Notice::Status(label) => self.transcript.status(label, Some(words.to_owned()), Vec::new()),
        }
    }

    fn call(&mut self, update: &Value) {
        let call_id = update["toolCallId"].as_str().unwrap_or_default();
        if !self.refused.remove(call_id) {
            self.settle_refused();
        }
        self.begin_call(call_id, update);
        let status = update["status"].as_str().unwrap_or_default();
        if matches!(status, "completed" | "failed") {
            let failed = status == "failed";
            let parts = if failed { Vec::new() } else { files(&update["content"]) };
            self.transcript.call_finished(call_id, ToolOutcome { output: output(update), failed, parts });
        }
    }

    /// Begins a call, or takes in what more is known of it.
    pub(super) fn begin_call(&mut self, call_id: &str, call: &Value) {
        let title = call["title"].as_str().unwrap_or_default();
        let name = match call["kind"].as_str() {
            Some(kind) if kind != "other" => kind,
            _ => title,
        };
        let input = match &call["rawInput"] {
            Value::Null if !title.is_empty() && !self.transcript.is_open(call_id) => json!({ "title": title }),
            input => input.clone(),
        };
        self.transcript.call_started(call_id, name, &input, None);
        self.transcript.call_touches(call_id, files(&call["content"]));
    }

    /// Something else happens: a refused call that nobody spoke of again is over.
    pub(super) fn settle_refused(&mut self) {
        for call in std::mem::take(&mut self.refused) {
            if self.transcript.is_open(&call) {
                let output = "the person said no".to_owned();
                self.transcript.call_finished(&call, ToolOutcome { output, failed: true, parts: Vec::new() });
            }
        }
    }
}

fn files(content: &Value) -> Vec<ContentPart> {
    let parts = content.as_array().into_iter().flatten().filter(|part| part["type"] == "diff");
    parts
        .filter_map(|part| {
            let (old, new) = (part["oldText"].as_str().unwrap_or_default(), part["newText"].as_str()?);
            Some(diff::changed(part["path"].as_str()?, old, new))
        })
        .collect()
}

/// What the tool gave back, in the first place where the agent told it.
fn output(update: &Value) -> String {
    let parts = update["content"].as_array().into_iter().flatten();
    let words: String = parts.filter_map(|part| part["content"]["text"].as_str()).collect();
    if !words.is_empty() {
        return words;
    }
    let raw = &update["rawOutput"];
    let told = ["output", "content", "error", "message"].iter().find_map(|name| raw[*name].as_str());
    told.or(raw.as_str()).unwrap_or_default().to_owned()
}
