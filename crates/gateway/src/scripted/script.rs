//! The script format: strict YAML or JSON, documented in `docs/scripted-model.md`.
//!
//! Invalid rules are rejected when the script is parsed, never when a rule answers.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{pattern::TextPattern, template};

/// Error of parsing a script.
#[derive(Debug, thiserror::Error)]
pub enum ModelScriptError {
    /// The text is not YAML, or has an unknown key or a wrong value.
    #[error("cannot parse the model script: {0}")]
    Unreadable(String),
    /// The `version` is not supported.
    #[error("unsupported model script: `version` is {0}, supported is 1")]
    Version(u32),
    /// A rule is invalid.
    #[error("rule {number} of the model script is invalid: {problem}")]
    Rule {
        /// Position of the rule, from 1.
        number: usize,
        /// Description of the invalid field.
        problem: String,
    },
}

/// A script: a list of rules. The first rule that matches a request answers it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelScript {
    version: u32,
    /// Model names that `GET /v1/models` lists.
    #[serde(default = "default_models")]
    pub(super) models: Vec<String>,
    pub(super) rules: Vec<ScriptRule>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptRule {
    #[serde(default)]
    pub(super) when: RuleCondition,
    /// Maximum number of answers; afterwards the rule is skipped.
    pub(super) times: Option<u64>,
    pub(super) answer: Option<Vec<AnswerPart>>,
    pub(super) error: Option<ScriptedError>,
    pub(super) stop_reason: Option<ScriptedStopReason>,
    pub(super) usage: Option<ScriptedUsage>,
    #[serde(default)]
    pub(super) pace: StreamPace,
}

/// Conditions on a request. Absent conditions always hold.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleCondition {
    pub(super) prompt: Option<TextPattern>,
    pub(super) conversation: Option<TextPattern>,
    pub(super) tool_result: Option<TextPattern>,
    pub(super) model: Option<TextPattern>,
    pub(super) turn: Option<u64>,
    pub(super) step: Option<u64>,
}

/// One step of an answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AnswerPart {
    Text(String),
    Thinking(String),
    Tool(ScriptedToolCall),
    DelayMs(u64),
    /// Bytes that are sent unchanged.
    Raw(String),
    /// An error event that ends a stream.
    Fail(ScriptedError),
    /// Breaks the connection.
    Cut,
    /// Sends nothing more and keeps the connection open.
    Hang,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedToolCall {
    pub(super) name: String,
    #[serde(default)]
    pub(super) input: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedError {
    #[serde(default = "default_failure_status")]
    pub(super) status: u16,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScriptedStopReason {
    EndTurn,
    ToolUse,
    MaxTokens,
    StopSequence,
    Refusal,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ScriptedUsage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) cache_write_1h: u64,
}

/// Size of the pieces of a stream and the delay before each piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StreamPace {
    pub(super) chars: usize,
    pub(super) delay_ms: u64,
}

impl Default for StreamPace {
    fn default() -> Self {
        Self { chars: 24, delay_ms: 0 }
    }
}

impl ModelScript {
    /// Parses a script and checks every rule.
    pub fn parse(text: &str) -> Result<Self, ModelScriptError> {
        let script: Self =
            serde_saphyr::from_str(text).map_err(|error| ModelScriptError::Unreadable(error.to_string()))?;
        if script.version != 1 {
            return Err(ModelScriptError::Version(script.version));
        }
        for (index, rule) in script.rules.iter().enumerate() {
            rule.check().map_err(|problem| ModelScriptError::Rule { number: index + 1, problem })?;
        }
        Ok(script)
    }
}

impl ScriptRule {
    fn check(&self) -> Result<(), String> {
        match (&self.answer, &self.error) {
            (Some(_), Some(_)) => return Err("`answer` and `error` are both set; remove one of them".to_owned()),
            (None, None) => return Err("neither `answer` nor `error` is set".to_owned()),
            _ => {}
        }
        if self.pace.chars == 0 {
            return Err("`pace.chars` is 0; it must be at least 1".to_owned());
        }
        let statuses = self.error.iter().map(|failure| failure.status);
        if let Some(status) = statuses.into_iter().find(|status| !(400..=599).contains(status)) {
            return Err(format!("`error.status` is {status}; it must be between 400 and 599"));
        }
        let known = self.when.available_names();
        for part in self.answer.iter().flatten() {
            part.for_each_text(&mut |text| check_names(text, &known))?;
        }
        self.error.as_ref().map_or(Ok(()), |failure| check_names(&failure.message, &known))
    }
}

impl RuleCondition {
    /// Returns the names that the answer of this rule can use as `${name}`.
    fn available_names(&self) -> BTreeSet<String> {
        let captured = [&self.prompt, &self.conversation, &self.tool_result, &self.model]
            .into_iter()
            .flatten()
            .flat_map(TextPattern::capture_names);
        ["prompt", "tool_result", "model", "turn", "step"].map(str::to_owned).into_iter().chain(captured).collect()
    }
}

impl AnswerPart {
    fn for_each_text(&self, check: &mut impl FnMut(&str) -> Result<(), String>) -> Result<(), String> {
        match self {
            Self::Text(text) | Self::Thinking(text) | Self::Raw(text) => check(text),
            Self::Tool(call) => call.input.values().try_for_each(|value| for_each_string(value, check)),
            Self::Fail(failure) => check(&failure.message),
            Self::DelayMs(_) | Self::Cut | Self::Hang => Ok(()),
        }
    }
}

fn for_each_string(value: &Value, check: &mut impl FnMut(&str) -> Result<(), String>) -> Result<(), String> {
    match value {
        Value::String(text) => check(text),
        Value::Array(items) => items.iter().try_for_each(|item| for_each_string(item, check)),
        Value::Object(fields) => fields.values().try_for_each(|field| for_each_string(field, check)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn check_names(text: &str, known: &BTreeSet<String>) -> Result<(), String> {
    let unknown = template::placeholder_names(text).find(|name| !known.contains(*name));
    unknown.map_or(Ok(()), |name| Err(format!("`${{{name}}}` is used but not captured by `when`")))
}

fn default_models() -> Vec<String> {
    vec!["scripted".to_owned()]
}

fn default_failure_status() -> u16 {
    500
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_rejected(rule: &str, expected: &str) {
        let error = ModelScript::parse(&format!("version: 1\nrules:\n  - {rule}\n")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn invalid_rule_is_rejected_by_the_parser() {
        check_rejected("when: {}", "rule 1 of the model script is invalid: neither `answer` nor `error` is set");
        check_rejected("{answer: [text: a], error: {message: b}}", "`answer` and `error` are both set");
        check_rejected("{answer: [text: 'hi ${rest}']}", "`${rest}` is used but not captured by `when`");
        check_rejected("{answer: [tool: {name: t, input: {a: ['${x}']}}]}", "`${x}` is used");
        check_rejected("{answer: [text: a], pace: {chars: 0}}", "`pace.chars` is 0");
        check_rejected("{error: {status: 200, message: fine}}", "`error.status` is 200");
    }

    #[test]
    fn unknown_key_or_version_is_rejected() {
        check_rejected("{answer: [text: a], anwser: []}", "anwser");
        check_rejected("{answer: [texd: a]}", "texd");
        check_rejected("{when: {prompt: {matches: x}}, answer: []}", "matches");
        assert!(matches!(ModelScript::parse("version: 2\nrules: []"), Err(ModelScriptError::Version(2))));
    }
}
