//! What a person allowed for the rest of a session.
//!
//! A grant is held here and never by the agent, which hears each time that it may, once: so it can be listed and
//! taken back. It covers what has the pattern that the person was shown and nothing else. Both are on record, so that a
//! session that is resumed knows them again.

use protocol::{EventBody, Grant, Permission, PermissionId};
use serde_json::{Value, json};

use super::Actor;
use crate::SessionError;

impl Actor {
    /// Keeps what was just allowed for the rest of the session.
    pub(super) fn grant(&mut self, asked: &Permission) -> Result<(), SessionError> {
        let Some(matching) = matching(asked).filter(|_| self.granted(asked).is_none()) else { return Ok(()) };
        let grant = Grant { grant_id: asked.permission_id.clone(), action: asked.action.clone(), matching };
        self.recorder.daemon(EventBody::GrantCreated(grant.clone()))?;
        self.grants.push(grant);
        Ok(())
    }

    /// Takes a grant back; the next time the agent asks again.
    pub(super) async fn revoke(&mut self, id: &PermissionId) -> Result<(), SessionError> {
        let place = self.grants.iter().position(|grant| grant.grant_id == *id);
        let no_grant = || SessionError::GrantNotFound { id: self.plan.id.clone(), grant: id.clone() };
        let place = place.ok_or_else(no_grant)?;
        self.recorder.daemon(EventBody::GrantRevoked(self.grants[place].clone()))?;
        self.grants.remove(place);
        Ok(self.recorder.sync().await?)
    }

    /// What allows it, if something does.
    pub(super) fn granted(&self, asked: &Permission) -> Option<&Grant> {
        let wanted = matching(asked)?;
        self.grants.iter().find(|grant| grant.action == asked.action && grant.matching == wanted)
    }
}

/// What must be the same for a grant to hold: the pattern that the person was shown, else the whole input. What has
/// neither could be anything the next time, and no grant covers it.
fn matching(asked: &Permission) -> Option<Value> {
    let of = |name: &str| asked.metadata.as_ref()?.get(name).filter(|value| !value.is_null()).cloned();
    of("pattern").or_else(|| Some(json!({"tool": of("tool"), "input": of("input")?})))
}

#[cfg(test)]
mod tests {
    use agents::{DialogueOutput, LaunchContext, by_name};
    use protocol::EventBody;

    use super::*;

    /// What a grant for the request in `line` would cover.
    fn covered(agent: &str, line: &Value) -> Option<Value> {
        let mut dialogue = by_name(agent).unwrap().dialogue(&LaunchContext { epoch: 1, ..LaunchContext::default() });
        let outputs = dialogue.line(line.to_string().as_bytes());
        let asked = outputs.into_iter().find_map(|output| match output {
            DialogueOutput::Event(draft) => match draft.body {
                EventBody::PermissionRequested(asked) => Some(asked),
                _ => None,
            },
            _ => None,
        });
        matching(&asked.expect("it asks"))
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
    fn a_command_is_known_again_whatever_the_model_calls_it() {
        assert_eq!(covered("claude", &claude("ls", "Lists")), covered("claude", &claude("ls", "Looks around")));
        assert_ne!(covered("claude", &claude("ls", "Lists")), covered("claude", &claude("rm x", "Lists")));
        assert_eq!(covered("opencode", &opencode("ls", "Lists")), covered("opencode", &opencode("ls", "Looks")));
        assert_ne!(covered("opencode", &opencode("ls", "Lists")), covered("opencode", &opencode("rm x", "Lists")));
    }

    #[test]
    fn an_agent_that_tells_no_input_is_not_let_do_anything() {
        assert_ne!(covered("gemini", &gemini("ls")), covered("gemini", &gemini("rm x")));
        assert_eq!(covered("gemini", &gemini("ls")), covered("gemini", &gemini("ls")));
        assert_eq!(covered("gemini", &gemini("")), None);
    }
}
