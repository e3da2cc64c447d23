//! Typed metadata of turns, tool calls and exits: the fields that sessions write and read back.

use protocol::Permission;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
