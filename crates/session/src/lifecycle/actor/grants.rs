//! Grants: permissions that a person gave for the rest of a session.
//!
//! The session keeps the grants, and answers each covered request with "once", so that grants can be listed and
//! revoked. A grant covers requests with exactly the pattern that the person saw. Grants are recorded, so a resumed
//! session has them again.

use protocol::{EventBody, Grant, Permission, PermissionId};
use serde_json::{Value, json};

use super::Actor;
use crate::SessionError;
use crate::lifecycle::RequestedTool;

impl Actor {
    /// Adds a grant for requests like `permission`, unless one exists or the request cannot be recognized again.
    pub(super) fn add_grant(&mut self, permission: &Permission) -> Result<(), SessionError> {
        let Some(matching) = grant_pattern(permission).filter(|_| self.matching_grant(permission).is_none()) else {
            return Ok(());
        };
        let grant = Grant { grant_id: permission.permission_id.clone(), action: permission.action.clone(), matching };
        self.recorder.daemon(EventBody::GrantCreated(grant.clone()))?;
        self.grants.push(grant);
        Ok(())
    }

    /// Revokes a grant; fails when there is none with that id.
    pub(super) async fn revoke(&mut self, id: &PermissionId) -> Result<(), SessionError> {
        let index = self.grants.iter().position(|grant| grant.grant_id == *id);
        let not_found = || SessionError::GrantNotFound { id: self.plan.id.clone(), grant: id.clone() };
        let index = index.ok_or_else(not_found)?;
        self.recorder.daemon(EventBody::GrantRevoked(self.grants[index].clone()))?;
        self.grants.remove(index);
        Ok(self.recorder.sync().await?)
    }

    /// Returns the grant that covers `permission`.
    pub(super) fn matching_grant(&self, permission: &Permission) -> Option<&Grant> {
        let wanted = grant_pattern(permission)?;
        self.grants.iter().find(|grant| grant.action == permission.action && grant.matching == wanted)
    }
}

/// Returns the value by which a grant recognizes later requests like `permission`: the pattern that the person saw, else
/// the whole input. Returns `None` for a request with neither, which no grant can cover.
pub fn grant_pattern(permission: &Permission) -> Option<Value> {
    let RequestedTool { tool, pattern, input, .. } = RequestedTool::of(permission);
    pattern.cloned().or_else(|| Some(json!({"tool": tool, "input": input?})))
}

#[cfg(test)]
mod tests {
    use agents::{Dialogue as _, DialogueOutput, LaunchContext, NormalizedDialogue, by_name};
    use protocol::EventBody;

    use super::*;

    /// Returns the pattern of a grant for the request in `line`.
    fn covered(agent: &str, line: &Value) -> Option<Value> {
        let mut dialogue = NormalizedDialogue::new(
            by_name(agent).unwrap().new_dialogue(&LaunchContext { epoch: 1, ..LaunchContext::default() }),
        );
        let outputs = dialogue.read_line(line.to_string().as_bytes());
        let permission = outputs.into_iter().find_map(|output| match output {
            DialogueOutput::Event(draft) => match draft.body {
                EventBody::PermissionRequested(permission) => Some(permission),
                _ => None,
            },
            _ => None,
        });
        grant_pattern(&permission.expect("no permission request"))
    }

    fn claude(command: &str, description: &str) -> Value {
        let input = json!({"command": command, "description": description});
        let request =
            json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": input, "description": description});
        json!({"type": "control_request", "request_id": "r", "request": request})
    }

    fn gemini(title: &str) -> Value {
        let call = json!({"toolCallId": title, "kind": "execute", "title": title, "content": []});
        let params = json!({"sessionId": "s", "toolCall": call, "options": []});
        json!({"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": params})
    }

    fn opencode(command: &str, title: &str) -> Value {
        let call = json!({"toolCallId": title, "kind": "execute", "title": title, "rawInput": {"command": command}});
        let params = json!({"sessionId": "s", "toolCall": call, "options": []});
        json!({"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": params})
    }

    #[test]
    fn same_command_matches_whatever_its_description() {
        assert_eq!(covered("claude", &claude("ls", "Lists")), covered("claude", &claude("ls", "Looks around")));
        assert_ne!(covered("claude", &claude("ls", "Lists")), covered("claude", &claude("rm x", "Lists")));
        assert_eq!(covered("opencode", &opencode("ls", "Lists")), covered("opencode", &opencode("ls", "Looks")));
        assert_ne!(covered("opencode", &opencode("ls", "Lists")), covered("opencode", &opencode("rm x", "Lists")));
    }

    #[test]
    fn request_without_input_is_not_granted() {
        assert_ne!(covered("gemini", &gemini("ls")), covered("gemini", &gemini("rm x")));
        assert_eq!(covered("gemini", &gemini("ls")), covered("gemini", &gemini("ls")));
        assert_eq!(covered("gemini", &gemini("")), None);
    }
}
