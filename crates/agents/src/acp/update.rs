//! `session/update`: messages, reasoning, calls and plans.

use agent_client_protocol_schema::{ContentBlock, ContentChunk, Plan, SessionUpdate};
use protocol::ItemStatus;
use serde::Serialize;
use serde_json::Value;

use super::{AcpDialogue, ProgramNotice, call, wire};
use crate::transcript::{PlanStep, TextKind};

/// Menus, titles and counters without relevant information; the gateway counts tokens.
const IGNORED_UPDATES: [&str; 6] = [
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",
    "user_message_chunk",
];

impl AcpDialogue {
    pub(super) fn update(&mut self, value: Value) {
        let update = &value["params"]["update"];
        let name = update["sessionUpdate"].as_str().unwrap_or_default();
        // The journal already contains the events of an old session.
        if self.replaying {
            if self.session.is_some() && name == "available_commands_update" {
                self.replaying = false;
                self.start_prompts();
            }
            return;
        }
        if IGNORED_UPDATES.contains(&name) {
            return;
        }
        match wire::update(update) {
            Some(decoded) => self.handle_update(name, update, &decoded),
            None => self.transcript.record_unknown(value),
        }
    }

    fn handle_update(&mut self, name: &str, update: &Value, decoded: &SessionUpdate) {
        match decoded {
            SessionUpdate::AgentMessageChunk(chunk) => self.chunk(TextKind::Message, chunk, update),
            SessionUpdate::AgentThoughtChunk(chunk) => self.chunk(TextKind::Thought, chunk, update),
            SessionUpdate::ToolCallUpdate(call) => self.call(call),
            SessionUpdate::Plan(plan) => self.plan(plan),
            _ => return self.transcript.record_unknown(update.clone()),
        }
        self.record_unknown_parts(name, update, decoded);
    }

    /// Records the whole `message` if `decoded` lacks one of its fields, once for each field.
    pub(super) fn record_unknown_parts(&mut self, name: &str, message: &Value, decoded: &impl Serialize) {
        let place = wire::first_unknown_path(message, decoded).map(|path| format!("{name}{path}"));
        self.transcript.record_unknown_once(place, message);
    }

    fn chunk(&mut self, speech: TextKind, chunk: &ContentChunk, update: &Value) {
        self.close_refused_calls();
        let ContentBlock::Text(text) = &chunk.content else {
            return self.transcript.record_unknown(update.clone());
        };
        let words = text.text.as_str();
        if words.is_empty() {
            return;
        }
        let notice = self.quirks.notice.filter(|_| speech == TextKind::Message).and_then(|notice| notice(words));
        if let Some(notice) = notice {
            return self.handle_notice(notice, words);
        }
        let named = words.strip_prefix("Info: ").filter(|_| self.quirks.announces_files);
        if named.is_some_and(|path| self.transcript.is_file_of_open_call(path)) {
            return;
        }
        let kind = if speech == TextKind::Thought { "thought" } else { "message" };
        let message = chunk.message_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let key = format!("{kind}:{message}");
        self.transcript.finish_other_texts(&key);
        self.transcript.append_text(&key, speech, None, words);
    }

    fn handle_notice(&mut self, notice: ProgramNotice, words: &str) {
        match notice {
            ProgramNotice::Error => {
                self.model_failed = true;
                self.transcript.finish_texts(ItemStatus::Failed);
                self.transcript.push_error(words, Some("upstream_error"), None);
            }
            ProgramNotice::Retrying => {
                self.transcript.finish_texts(ItemStatus::Failed);
                self.transcript.push_status("Retrying", Some(words.to_owned()), Vec::new());
            }
            ProgramNotice::Status(label) => self.transcript.push_status(label, Some(words.to_owned()), Vec::new()),
        }
    }

    fn plan(&mut self, plan: &Plan) {
        self.close_refused_calls();
        let steps =
            plan.entries.iter().map(|entry| PlanStep::new(Some(&entry.content), Some(&call::wire_name(&entry.status))));
        let steps: Vec<PlanStep> = steps.collect();
        // Some agents report only that a plan exists, without its steps.
        if !steps.is_empty() {
            self.transcript.push_plan(&steps);
        }
    }
}
