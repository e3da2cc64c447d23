//! `session/request_permission`: a request with options.

use agent_client_protocol_schema::{
    PermissionOptionId, PermissionOptionKind, RequestId, RequestPermissionOutcome, RequestPermissionResponse,
    SelectedPermissionOutcome, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use protocol::{ContentPart, PermissionId, PermissionReply};
use serde_json::{Value, json};

use super::{AcpDialogue, call, wire};
use crate::transcript::PermissionDetails;
use crate::{PermissionMode, pattern};

/// Kinds of calls that change nothing. Leaving plan mode is not one of them.
const READ_ONLY_KINDS: &[ToolKind] = &[ToolKind::Read, ToolKind::Search, ToolKind::Fetch, ToolKind::Think];
/// Kinds of options that deny, the weakest first.
const REFUSALS: &[PermissionOptionKind] = &[PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways];

/// A request of the agent that waits for an answer.
#[derive(Debug)]
pub(super) struct AcpPermissionRequest {
    id: RequestId,
    call: String,
    options: Vec<OfferedOption>,
}

/// An option of a request. Its name for people is in the metadata of the event.
#[derive(Debug)]
struct OfferedOption {
    id: PermissionOptionId,
    kind: PermissionOptionKind,
}

impl AcpDialogue {
    pub(super) fn ask(&mut self, id: RequestId, params: &Value) {
        let tool_call = &params["toolCall"];
        // A request with unknown content must be answered as well, because the agent waits.
        let call = wire::decode::<ToolCallUpdate>(tool_call)
            .unwrap_or_else(|| ToolCallUpdate::new(String::new(), ToolCallUpdateFields::new()));
        self.record_unknown_parts("request_permission", tool_call, &call);
        // Not every agent reports a call before it asks for a permission.
        self.begin_call(&call);
        let options = params["options"].as_array().into_iter().flatten();
        let request = AcpPermissionRequest {
            id,
            call: call.tool_call_id.to_string(),
            options: options.filter_map(OfferedOption::read).collect(),
        };
        let kind = call.fields.kind.unwrap_or_default();
        // Modes are implemented here, because the modes of the agents differ and change.
        let allowed_by_mode =
            self.mode == PermissionMode::Bypass || (self.mode == PermissionMode::AcceptEdits && kind == ToolKind::Edit);
        if let Some(option) = request.choose(&[PermissionOptionKind::AllowOnce]).filter(|_| allowed_by_mode) {
            return self.reply(request.id, selected(option));
        }
        if self.mode == PermissionMode::Plan && !READ_ONLY_KINDS.contains(&kind) {
            self.refused.insert(request.call.clone());
            let outcome = request.choose(REFUSALS).map_or(RequestPermissionOutcome::Cancelled, selected);
            return self.reply(request.id, outcome);
        }
        let action = call::wire_name(&kind);
        let details = PermissionDetails {
            tool: action.clone(),
            input: tool_call["rawInput"].clone(),
            call_id: Some(Value::String(request.call.clone())),
            title: Some(tool_call["title"].clone()),
            options: Some(params["options"].clone()),
            changes: call::files(&call.fields).iter().filter_map(change).collect(),
            pattern: pattern_of(&action, kind, tool_call),
            ..PermissionDetails::default()
        };
        let permission = self.transcript.request_permission(&action, &details);
        self.permissions.insert(permission, request);
    }

    pub(super) fn resolve_permission(&mut self, id: &PermissionId, reply: PermissionReply) {
        use PermissionOptionKind::{AllowAlways, AllowOnce};
        let Some(request) = self.permissions.remove(id).filter(|_| self.transcript.take_permission(id)) else {
            return;
        };
        let wanted: &[PermissionOptionKind] = match reply {
            PermissionReply::Once => &[AllowOnce],
            PermissionReply::Always => &[AllowAlways, AllowOnce],
            PermissionReply::Reject => REFUSALS,
        };
        // If no option fits the reply, the request is cancelled, which denies it.
        let outcome = request.choose(wanted).map_or(RequestPermissionOutcome::Cancelled, selected);
        if reply == PermissionReply::Reject {
            self.refused.insert(request.call);
        }
        self.reply(request.id, outcome);
    }

    pub(super) fn cancel_permissions(&mut self) {
        for (id, request) in std::mem::take(&mut self.permissions) {
            self.reply(request.id, RequestPermissionOutcome::Cancelled);
            self.transcript.withdraw_permission(&id);
        }
    }

    fn reply(&mut self, id: RequestId, outcome: RequestPermissionOutcome) {
        self.transcript.send(&wire::permission(id, RequestPermissionResponse::new(outcome)));
    }
}

impl AcpPermissionRequest {
    /// Returns the option of the first kind in `wanted` that the request offers.
    fn choose(&self, wanted: &[PermissionOptionKind]) -> Option<PermissionOptionId> {
        let of_kind = |kind: &PermissionOptionKind| self.options.iter().find(|option| option.kind == *kind);
        wanted.iter().find_map(of_kind).map(|option| option.id.clone())
    }
}

impl OfferedOption {
    /// Parses an option. An option of an unknown kind is never chosen.
    fn read(option: &Value) -> Option<Self> {
        Some(Self { id: wire::decode(&option["optionId"])?, kind: wire::decode(&option["kind"])? })
    }
}

/// Returns the pattern: the edited file, otherwise the input, otherwise the title, which
/// is the command for agents that report no input.
fn pattern_of(action: &str, kind: ToolKind, tool_call: &Value) -> Option<Value> {
    let (input, title) = (&tool_call["rawInput"], tool_call["title"].as_str().filter(|title| !title.is_empty()));
    let has_input = input.as_object().is_some_and(|input| !input.is_empty());
    let mut diffs = tool_call["content"].as_array().into_iter().flatten().filter(|part| part["type"] == "diff");
    match (diffs.next().and_then(|diff| diff["path"].as_str()), diffs.next()) {
        (Some(path), None) if kind == ToolKind::Edit => Some(pattern::pattern_of_file(action, path)),
        _ if has_input && kind == ToolKind::Other => Some(json!({ "tool": action, "title": title?, "input": input })),
        _ if has_input => pattern::pattern_of_call(action, input),
        _ => Some(json!({ "tool": action, "title": title? })),
    }
}

/// Returns a file change as the metadata of a request contains it.
fn change(part: &ContentPart) -> Option<Value> {
    match part {
        ContentPart::FileRef { path, diff: Some(diff), .. } => Some(json!({ "path": path, "diff": diff })),
        _ => None,
    }
}

fn selected(option: PermissionOptionId) -> RequestPermissionOutcome {
    RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option))
}
