//! `session/update`: words, thoughts, calls and plans.

use agent_client_protocol_schema::{ContentBlock, ContentChunk, Plan, SessionUpdate};
use protocol::ItemStatus;
use serde::Serialize;
use serde_json::{Value, json};

use super::{AcpDialogue, Notice, call, wire};
use crate::transcript::Speech;

/// Menus, titles and counters, which nobody here reads: the gateway counts for itself.
const UNREAD: [&str; 6] = [
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
        // What an old session was is in the journal already.
        if self.replaying {
            if self.session.is_some() && name == "available_commands_update" {
                self.replaying = false;
                self.start_prompts();
            }
            return;
        }
        if UNREAD.contains(&name) {
            return;
        }
        match wire::update(update) {
            Some(understood) => self.understood(name, update, &understood),
            None => self.transcript.unknown(value),
        }
    }

    fn understood(&mut self, name: &str, update: &Value, understood: &SessionUpdate) {
        match understood {
            SessionUpdate::AgentMessageChunk(chunk) => self.chunk(Speech::Message, chunk, update),
            SessionUpdate::AgentThoughtChunk(chunk) => self.chunk(Speech::Thought, chunk, update),
            SessionUpdate::ToolCallUpdate(call) => self.call(call),
            SessionUpdate::Plan(plan) => self.plan(plan),
            _ => return self.transcript.unknown(update.clone()),
        }
        self.keep_lost(name, update, understood);
    }

    /// Keeps `said` whole where `understood` is less than it, once for each such place.
    pub(super) fn keep_lost(&mut self, name: &str, said: &Value, understood: &impl Serialize) {
        let place = wire::lost(said, understood).map(|path| format!("{name}{path}"));
        self.transcript.keep_once(place, said);
    }

    fn chunk(&mut self, speech: Speech, chunk: &ContentChunk, update: &Value) {
        self.settle_refused();
        let ContentBlock::Text(text) = &chunk.content else {
            return self.transcript.unknown(update.clone());
        };
        let words = text.text.as_str();
        if words.is_empty() {
            return;
        }
        let notice = self.quirks.notice.filter(|_| speech == Speech::Message).and_then(|notice| notice(words));
        if let Some(notice) = notice {
            return self.take_notice(notice, words);
        }
        let named = words.strip_prefix("Info: ").filter(|_| self.quirks.names_files);
        if named.is_some_and(|path| self.transcript.is_touched(path)) {
            return;
        }
        let kind = if speech == Speech::Thought { "thought" } else { "message" };
        let message = chunk.message_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let key = format!("{kind}:{message}");
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

    fn plan(&mut self, plan: &Plan) {
        self.settle_refused();
        let steps =
            plan.entries.iter().map(|entry| json!({ "text": entry.content, "status": call::word(&entry.status) }));
        let steps: Vec<Value> = steps.collect();
        // One agent keeps its plan to itself and tells that there is one.
        if !steps.is_empty() {
            self.transcript.plan(steps);
        }
    }
}
