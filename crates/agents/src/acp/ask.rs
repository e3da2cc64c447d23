//! `session/request_permission`: options to choose from, each of a kind.

use protocol::{PermissionId, PermissionReply};
use serde_json::{Value, json};

use super::AcpDialogue;
use crate::PermissionMode;

/// A request of the agent that waits for our answer.
#[derive(Debug)]
pub(super) struct Asked {
    id: Value,
    call: String,
    options: Vec<Value>,
}

impl AcpDialogue {
    pub(super) fn ask(&mut self, id: &Value, params: &Value) {
        let call = &params["toolCall"];
        let call_id = call["toolCallId"].as_str().unwrap_or_default().to_owned();
        // One agent tells of a call here for the first time.
        self.begin_call(&call_id, call);
        let options = params["options"].as_array().cloned().unwrap_or_default();
        let action = call["kind"].as_str().unwrap_or("other");
        let asked = Asked { id: id.clone(), call: call_id, options };
        // The mode is kept here and not by the agent's own switches, which differ and drift.
        let free =
            self.mode == PermissionMode::Bypass || (self.mode == PermissionMode::AcceptEdits && action == "edit");
        if let Some(option) = asked.choose(&["allow_once"]).filter(|_| free) {
            let outcome = json!({ "outcome": "selected", "optionId": option });
            return self.reply(&asked.id, &outcome);
        }
        let metadata = json!({
            "tool": action,
            "title": call["title"],
            "input": call["rawInput"],
            "call_id": asked.call,
            "options": asked.options,
        });
        let permission = self.transcript.permission(action, metadata);
        self.permissions.insert(permission, asked);
    }

    pub(super) fn answer_permission(&mut self, id: &PermissionId, reply: PermissionReply) {
        let Some(asked) = self.permissions.remove(id).filter(|_| self.transcript.permission_answered(id)) else {
            return;
        };
        let wanted: &[&str] = match reply {
            PermissionReply::Once => &["allow_once"],
            PermissionReply::Always => &["allow_always", "allow_once"],
            PermissionReply::Reject => &["reject_once", "reject_always"],
        };
        let outcome = match asked.choose(wanted) {
            Some(option) => json!({ "outcome": "selected", "optionId": option }),
            // Nothing on offer says what the person said; doing nothing is the only safe reading.
            None => json!({ "outcome": "cancelled" }),
        };
        if reply == PermissionReply::Reject {
            self.refused.insert(asked.call);
        }
        self.reply(&asked.id, &outcome);
    }

    pub(super) fn cancel_permissions(&mut self) {
        for (id, asked) in std::mem::take(&mut self.permissions) {
            self.reply(&asked.id, &json!({ "outcome": "cancelled" }));
            self.transcript.withdraw_permission(&id);
        }
    }

    fn reply(&mut self, id: &Value, outcome: &Value) {
        self.transcript.send(&json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": outcome } }));
    }
}

impl Asked {
    /// The option of the first kind in `wanted` that is on offer.
    fn choose(&self, wanted: &[&str]) -> Option<&Value> {
        let of_kind = |kind: &&str| self.options.iter().find(|option| option["kind"] == **kind);
        wanted.iter().find_map(of_kind).map(|option| &option["optionId"])
    }
}
