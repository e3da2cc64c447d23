//! The script as it is written: YAML or JSON, strict.
//!
//! A rule that could not do what it says is refused when the script is read, not when it plays.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{pattern::Pattern, template};

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelScriptError {
    /// It is not YAML, or has keys that mean nothing.
    #[error("the script cannot be read: {0}")]
    Unreadable(String),
    /// It is of a version we do not know.
    #[error("the script is of version {0}; this program plays version 1")]
    Version(u32),
    /// One rule is wrong.
    #[error("rule {number} of the script {problem}")]
    Rule {
        /// Which one, from 1.
        number: usize,
        /// What is wrong with it.
        problem: String,
    },
}

/// A script: what to answer to what. The first rule that matches answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelScript {
    version: u32,
    /// Names told by `GET /v1/models`.
    #[serde(default = "default_models")]
    pub(super) models: Vec<String>,
    pub(super) rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(default)]
    pub(super) when: When,
    /// How often the rule answers before it stands aside.
    pub(super) times: Option<u64>,
    pub(super) answer: Option<Vec<Part>>,
    pub(super) error: Option<Failure>,
    pub(super) stop_reason: Option<StopReason>,
    pub(super) usage: Option<Tokens>,
    #[serde(default)]
    pub(super) pace: Pace,
}

/// What must be true of a request. What is absent is not asked.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct When {
    pub(super) prompt: Option<Pattern>,
    pub(super) conversation: Option<Pattern>,
    pub(super) tool_result: Option<Pattern>,
    pub(super) model: Option<Pattern>,
    pub(super) turn: Option<u64>,
    pub(super) step: Option<u64>,
}

/// One piece of an answer, in order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    Text(String),
    Thinking(String),
    Tool(ToolCall),
    DelayMs(u64),
    /// Bytes that go out as they are.
    Raw(String),
    /// An error in the middle of the answer.
    Fail(Failure),
    /// The connection breaks.
    Cut,
    /// Nothing more ever comes.
    Hang,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolCall {
    pub(super) name: String,
    #[serde(default)]
    pub(super) input: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failure {
    #[serde(default = "default_failure_status")]
    pub(super) status: u16,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StopReason {
    EndTurn,
    ToolUse,
    MaxTokens,
    StopSequence,
    Refusal,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tokens {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) cache_write_1h: u64,
}

/// How a stream is cut into pieces, and how long each waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pace {
    pub(super) chars: usize,
    pub(super) delay_ms: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { chars: 24, delay_ms: 0 }
    }
}

impl ModelScript {
    /// Reads a script.
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

impl Rule {
    fn check(&self) -> Result<(), String> {
        match (&self.answer, &self.error) {
            (Some(_), Some(_)) => return Err("has both `answer` and `error`".to_owned()),
            (None, None) => return Err("has neither `answer` nor `error`".to_owned()),
            _ => {}
        }
        if self.pace.chars == 0 {
            return Err("has a pace of 0 characters".to_owned());
        }
        let statuses = self.error.iter().map(|failure| failure.status);
        if let Some(status) = statuses.into_iter().find(|status| !(400..=599).contains(status)) {
            return Err(format!("answers with an error of status {status}"));
        }
        let known = self.when.names();
        for part in self.answer.iter().flatten() {
            part.for_each_text(&mut |text| check_names(text, &known))?;
        }
        self.error.as_ref().map_or(Ok(()), |failure| check_names(&failure.message, &known))
    }
}

impl When {
    /// Names that an answer to such a request can use.
    fn names(&self) -> BTreeSet<String> {
        let captured = [&self.prompt, &self.conversation, &self.tool_result, &self.model]
            .into_iter()
            .flatten()
            .flat_map(Pattern::names);
        ["prompt", "tool_result", "model", "turn", "step"].map(str::to_owned).into_iter().chain(captured).collect()
    }
}

impl Part {
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
    let unknown = template::names(text).find(|name| !known.contains(*name));
    unknown.map_or(Ok(()), |name| Err(format!("uses `${{{name}}}`, which nothing in its `when` captures")))
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
    fn check_refused(rule: &str, expected: &str) {
        let error = ModelScript::parse(&format!("version: 1\nrules:\n  - {rule}\n")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_rule_that_cannot_work_is_refused_when_it_is_read() {
        check_refused("when: {}", "rule 1 of the script has neither `answer` nor `error`");
        check_refused("{answer: [text: a], error: {message: b}}", "has both");
        check_refused("{answer: [text: 'hi ${rest}']}", "uses `${rest}`, which nothing in its `when` captures");
        check_refused("{answer: [tool: {name: t, input: {a: ['${x}']}}]}", "uses `${x}`");
        check_refused("{answer: [text: a], pace: {chars: 0}}", "a pace of 0");
        check_refused("{error: {status: 200, message: fine}}", "an error of status 200");
    }

    #[test]
    fn a_key_we_do_not_know_is_refused() {
        check_refused("{answer: [text: a], anwser: []}", "anwser");
        check_refused("{answer: [texd: a]}", "texd");
        check_refused("{when: {prompt: {matches: x}}, answer: []}", "matches");
        assert!(matches!(ModelScript::parse("version: 2\nrules: []"), Err(ModelScriptError::Version(2))));
    }
}
