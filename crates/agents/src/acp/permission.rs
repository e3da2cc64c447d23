//! `session/request_permission`: options to choose from, each of a kind.

use agent_client_protocol_schema::{
    PermissionOptionId, PermissionOptionKind, RequestId, RequestPermissionOutcome, RequestPermissionResponse,
    SelectedPermissionOutcome, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use protocol::{PermissionId, PermissionReply};
use serde_json::{Value, json};

use super::{AcpDialogue, call, wire};
use crate::{PermissionMode, pattern};

/// Kinds of calls that change nothing. The end of planning is none of them: a session that plans, plans.
const READ_ONLY_KINDS: &[ToolKind] = &[ToolKind::Read, ToolKind::Search, ToolKind::Fetch, ToolKind::Think];
/// What says no, the mildest first.
const REFUSALS: &[PermissionOptionKind] = &[PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways];

/// A request of the agent that waits for our answer.
#[derive(Debug)]
pub(super) struct AcpPermissionRequest {
    id: RequestId,
    call: String,
    options: Vec<OfferedOption>,
}

/// What we read of an option: its name is for people, who see it in the metadata.
#[derive(Debug)]
struct OfferedOption {
    id: PermissionOptionId,
    kind: PermissionOptionKind,
}

impl AcpDialogue {
    pub(super) fn ask(&mut self, id: RequestId, params: &Value) {
        let asked_for = &params["toolCall"];
        // Whatever it is about, it must be asked and answered: the agent waits.
        let call = wire::decode::<ToolCallUpdate>(asked_for)
            .unwrap_or_else(|| ToolCallUpdate::new(String::new(), ToolCallUpdateFields::new()));
        self.record_unknown_parts("request_permission", asked_for, &call);
        // One agent tells of a call here for the first time.
        self.begin_call(&call);
        let options = params["options"].as_array().into_iter().flatten();
        let asked =
            AcpPermissionRequest { id, call: call.tool_call_id.to_string(), options: options.filter_map(OfferedOption::read).collect() };
        let kind = call.fields.kind.unwrap_or_default();
        // The mode is kept here and not by the agent's own switches, which differ and drift.
        let free =
            self.mode == PermissionMode::Bypass || (self.mode == PermissionMode::AcceptEdits && kind == ToolKind::Edit);
        if let Some(option) = asked.choose(&[PermissionOptionKind::AllowOnce]).filter(|_| free) {
            return self.reply(asked.id, selected(option));
        }
        if self.mode == PermissionMode::Plan && !READ_ONLY_KINDS.contains(&kind) {
            self.refused.insert(asked.call.clone());
            let outcome = asked.choose(REFUSALS).map_or(RequestPermissionOutcome::Cancelled, selected);
            return self.reply(asked.id, outcome);
        }
        let action = call::wire_name(&kind);
        let mut metadata = json!({
            "tool": action,
            "title": asked_for["title"],
            "input": asked_for["rawInput"],
            "call_id": asked.call,
            "options": params["options"],
        });
        if let Some(pattern) = pattern_of(&action, kind, asked_for) {
            metadata["pattern"] = pattern;
        }
        let permission = self.transcript.request_permission(&action, metadata);
        self.permissions.insert(permission, asked);
    }

    pub(super) fn resolve_permission(&mut self, id: &PermissionId, reply: PermissionReply) {
        use PermissionOptionKind::{AllowAlways, AllowOnce};
        let Some(asked) = self.permissions.remove(id).filter(|_| self.transcript.take_permission(id)) else {
            return;
        };
        let wanted: &[PermissionOptionKind] = match reply {
            PermissionReply::Once => &[AllowOnce],
            PermissionReply::Always => &[AllowAlways, AllowOnce],
            PermissionReply::Reject => REFUSALS,
        };
        // Where nothing on offer says what the person said, doing nothing is the only safe reading.
        let outcome = asked.choose(wanted).map_or(RequestPermissionOutcome::Cancelled, selected);
        if reply == PermissionReply::Reject {
            self.refused.insert(asked.call);
        }
        self.reply(asked.id, outcome);
    }

    pub(super) fn cancel_permissions(&mut self) {
        for (id, asked) in std::mem::take(&mut self.permissions) {
            self.reply(asked.id, RequestPermissionOutcome::Cancelled);
            self.transcript.withdraw_permission(&id);
        }
    }

    fn reply(&mut self, id: RequestId, outcome: RequestPermissionOutcome) {
        self.transcript.send(&wire::permission(id, RequestPermissionResponse::new(outcome)));
    }
}

impl AcpPermissionRequest {
    /// The option of the first kind in `wanted` that is on option.
    fn choose(&self, wanted: &[PermissionOptionKind]) -> Option<PermissionOptionId> {
        let of_kind = |kind: &PermissionOptionKind| self.options.iter().find(|option| option.kind == *kind);
        wanted.iter().find_map(of_kind).map(|option| option.id.clone())
    }
}

impl OfferedOption {
    /// One of a kind that we do not know is no offer: it is never chosen.
    fn read(option: &Value) -> Option<Self> {
        Some(Self { id: wire::decode(&option["optionId"])?, kind: wire::decode(&option["kind"])? })
    }
}

/// A file where one is edited, else the input, else the title. A kind is no name of a tool: where it says nothing the
/// title does, and one agent tells no input and has the command for a title.
fn pattern_of(action: &str, kind: ToolKind, asked_for: &Value) -> Option<Value> {
    let (input, title) = (&asked_for["rawInput"], asked_for["title"].as_str().filter(|title| !title.is_empty()));
    let told = input.as_object().is_some_and(|input| !input.is_empty());
    let mut diffs = asked_for["content"].as_array().into_iter().flatten().filter(|part| part["type"] == "diff");
    match (diffs.next().and_then(|diff| diff["path"].as_str()), diffs.next()) {
        (Some(path), None) if kind == ToolKind::Edit => Some(pattern::pattern_of_file(action, path)),
        _ if told && kind == ToolKind::Other => Some(json!({ "tool": action, "title": title?, "input": input })),
        _ if told => pattern::pattern_of_call(action, input),
        _ => Some(json!({ "tool": action, "title": title? })),
    }
}

fn selected(option: PermissionOptionId) -> RequestPermissionOutcome {
    RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option))
}
