//! Typed metadata of events: the fields that sessions write and read back.
//!
//! Fields that an agent added are passed through unchanged.

use protocol::Permission;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Metadata of `permission.*` and `question.*` events.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RequestMetadata {
    /// The grant that answered the request.
    pub(crate) granted_by: Option<String>,
    /// The policy rule that denied the request.
    pub(crate) denied_by: Option<String>,
    /// Why the request was resolved without a person.
    pub(crate) reason: Option<String>,
    /// The event that kept a person from answering.
    pub(crate) cause: Option<String>,
    agent_fields: Map<String, Value>,
}

/// Why a request was resolved without a person.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolution<'a> {
    pub(crate) reason: &'a str,
    pub(crate) cause: Option<&'a str>,
}

/// The resolution reason of a request that nobody answered in time.
const EXPIRED: &str = "expired";

impl<'a> Resolution<'a> {
    /// Returns a resolution with a reason alone.
    pub(crate) fn new(reason: &'a str) -> Self {
        Self { reason, cause: None }
    }

    /// Returns the resolution of a request that can no longer be answered because of `cause`.
    pub(crate) fn expired(cause: &'a str) -> Self {
        Self { reason: EXPIRED, cause: Some(cause) }
    }
}

impl RequestMetadata {
    /// Reads the metadata of an event. A value that is not an object is kept as the field `asked`.
    pub(crate) fn read(metadata: Option<&Value>) -> Self {
        let mut agent_fields = match metadata {
            Some(Value::Object(fields)) => fields.clone(),
            Some(other) => Map::from_iter([("asked".to_owned(), other.clone())]),
            None => Map::new(),
        };
        let mut take = |name: &str| match agent_fields.remove(name) {
            Some(Value::String(text)) => Some(text),
            Some(other) => {
                agent_fields.insert(name.to_owned(), other);
                None
            }
            None => None,
        };
        let (granted_by, denied_by) = (take("granted_by"), take("denied_by"));
        let (reason, cause) = (take("reason"), take("cause"));
        Self { granted_by, denied_by, reason, cause, agent_fields }
    }

    /// Returns `metadata` with the fields of `resolution` added.
    pub(crate) fn resolved(metadata: Option<&Value>, resolution: Option<Resolution<'_>>) -> Option<Value> {
        let Some(Resolution { reason, cause }) = resolution else { return metadata.cloned() };
        let mut resolved = Self::read(metadata);
        resolved.reason = Some(reason.to_owned());
        resolved.cause = cause.map(str::to_owned).or(resolved.cause);
        Some(resolved.into_value())
    }

    /// Returns the metadata as it is written to the journal.
    pub(crate) fn into_value(self) -> Value {
        let Self { granted_by, denied_by, reason, cause, mut agent_fields } = self;
        let fields = [("granted_by", granted_by), ("denied_by", denied_by), ("reason", reason), ("cause", cause)];
        let present = fields.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::String(text?))));
        agent_fields.extend(present);
        Value::Object(agent_fields)
    }

    /// Whether a grant or the policy answered the request, so that it waits for nobody.
    pub(crate) fn is_answered(&self) -> bool {
        self.granted_by.is_some() || self.denied_by.is_some()
    }

    /// Whether the request was resolved without a person, other than by its deadline.
    pub(crate) fn was_resolved_by_session(&self) -> bool {
        self.reason.as_deref().is_some_and(|reason| reason != EXPIRED)
    }
}

/// The tool call that a permission request describes, as the agent reported it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestedTool<'a> {
    /// The agent's name of the tool.
    pub(crate) tool: Option<&'a Value>,
    /// The pattern that the person was shown.
    pub(crate) pattern: Option<&'a Value>,
    /// The input of the tool.
    pub(crate) input: Option<&'a Value>,
    command: Option<&'a Value>,
}

impl<'a> RequestedTool<'a> {
    pub(crate) fn of(permission: &'a Permission) -> Self {
        let field = |name| permission.metadata.as_ref()?.get(name).filter(|value: &&Value| !value.is_null());
        Self { tool: field("tool"), pattern: field("pattern"), input: field("input"), command: field("command") }
    }

    /// Returns the agent's name of the tool.
    pub(crate) fn name(&self) -> Option<&'a str> {
        let of_pattern = || self.pattern?.get("tool")?.as_str();
        self.tool.and_then(Value::as_str).or_else(of_pattern)
    }

    /// Returns the path that the tool changes.
    pub(crate) fn path(&self) -> Option<&'a str> {
        self.pattern?.get("path")?.as_str()
    }

    /// Returns the command line that the tool runs.
    pub(crate) fn command_line(&self) -> Option<String> {
        let command = |value: Option<&'a Value>| value.and_then(|value| value.get("command"));
        let of_pattern_input = command(self.pattern.and_then(|pattern| pattern.get("input")));
        let places = [of_pattern_input, command(self.pattern), command(self.input), self.command];
        places.into_iter().flatten().find_map(join_words)
    }
}

/// Returns a command line from a string or from a list of words.
fn join_words(command: &Value) -> Option<String> {
    match command {
        Value::String(line) => Some(line.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    }
}

/// Metadata of `turn.started` and `turn.ended`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TurnMetadata {
    /// The client's id of the message that started the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_message_id: Option<String>,
    /// Why the session ended the turn; absent when the agent ended the turn itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl TurnMetadata {
    /// Returns metadata that says why a turn was ended.
    pub(crate) fn ended(reason: &str) -> Self {
        Self { reason: Some(reason.to_owned()), ..Self::default() }
    }

    pub(crate) fn read(metadata: Option<&Value>) -> Self {
        metadata.and_then(|metadata| Self::deserialize(metadata).ok()).unwrap_or_default()
    }

    /// Returns the metadata as it is written to the journal; `None` when no field is set.
    pub(crate) fn into_value(self) -> Option<Value> {
        if self == Self::default() { None } else { serde_json::to_value(self).ok() }
    }
}

/// Details of the error event that reports the exit of an agent process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ExitDetails {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) out_of_memory: bool,
}

impl ExitDetails {
    pub(crate) fn read(details: Option<&Value>) -> Self {
        details.and_then(|details| Self::deserialize(details).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_the_agent_survive_a_resolution() {
        let asked = json!({"tool": "Bash", "reason": 5});
        let resolved = RequestMetadata::resolved(Some(&asked), Some(Resolution::expired("deadline")));
        assert_eq!(resolved, Some(json!({"tool": "Bash", "reason": "expired", "cause": "deadline"})));
        assert_eq!(RequestMetadata::resolved(Some(&asked), None), Some(asked));
        let text = RequestMetadata::resolved(Some(&json!("text")), Some(Resolution::new("policy")));
        assert_eq!(text, Some(json!({"asked": "text", "reason": "policy"})));
    }

    #[test]
    fn exit_details_keep_their_wire_format() {
        let details = ExitDetails { exit_code: Some(3), ..ExitDetails::default() };
        assert_eq!(serde_json::to_value(details).unwrap(), json!({"exit_code": 3, "signal": null}));
        assert!(ExitDetails::read(Some(&json!({"out_of_memory": true}))).out_of_memory);
    }

    #[test]
    fn turn_metadata_without_fields_is_absent() {
        assert_eq!(TurnMetadata::default().into_value(), None);
        assert_eq!(TurnMetadata::ended("agent_exited").into_value(), Some(json!({"reason": "agent_exited"})));
    }
}
