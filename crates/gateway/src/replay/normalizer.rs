//! Normalization of requests: removes values that differ between two runs of the same agent.
//!
//! Agents put times, generated ids, paths below `/tmp` and durations into their requests. A fixed mark replaces each of
//! them. Any other difference between two requests is significant.

use std::{borrow::Cow, fmt};

use regex::Regex;
use serde_json::Value;

use crate::retention::RedactionRules;

/// Top-level request fields that identify the run; they are removed.
const RUN_FIELDS: [&str; 6] =
    ["metadata", "user", "prompt_cache_key", "safety_identifier", "client_metadata", "session_id"];
/// Prefix of a system block with a checksum of the run; the block is removed.
const BILLING_PREFIX: &str = "x-anthropic-billing-header:";

/// Marks and the patterns that they replace. The order matters: a time is replaced before the numbers in it.
const RULES: [(&str, &str); 10] = [
    ("<uuid>", r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"),
    ("<time>", r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d{2}:?\d{2}))?)?"),
    (
        "<time>",
        r"\b(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,? +)?(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?) +\d{1,2}\b(?:,? +\d{4}\b)?(?:,? +(?:at +)?\d{1,2}:\d{2}(?::\d{2})?)?(?: ?[AP]M\b)?(?: (?:UTC|GMT))?(?: \d{4}\b)?",
    ),
    ("<time>", r"\b\d{1,2}/\d{1,2}/\d{4}(?:,? \d{1,2}:\d{2}(?::\d{2})?(?: ?[AP]M)?)?"),
    ("<time>", r"\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?(?: ?[AP]M)?"),
    (
        "<id>",
        r"\b(?:toolu|srvtoolu|call|chatcmpl|msg|req|resp|rs|fc|ctc|item|ses|sess|session|thread|conv|prt|exec)[_-][A-Za-z0-9_-]{6,}|\b[Cc]hunk ID: [0-9a-f]{4,}\b",
    ),
    ("<hex>", r"\b(?:[0-9a-f]{16,}|[0-9A-F]{16,})\b"),
    // Only random names are replaced: names with a digit and names from mktemp. A name of letters is significant.
    (
        "/tmp/<name>",
        r#"/(?:var/)?tmp/(?:[^\s"'`<>():,;/]*[0-9][^\s"'`<>():,;/]*|tmp\.[A-Za-z0-9]+)(?:/[^\s"'`<>():,;]*)?"#,
    ),
    ("<duration>", r"\b\d+(?:\.\d+)? ?(?:ms|µs|s|secs?|seconds?|milliseconds?)\b"),
    ("<process>", r"(?i)\b(?:pid|process(?: id)?|session id)[ =:]+\d+|(?:pid|ipc|mnt|net|user|uts|cgroup):\[\d+\]"),
];

/// Error of compiling a pattern.
#[derive(Debug, thiserror::Error)]
#[error("invalid regular expression `{pattern}`")]
pub struct NormalizerError {
    /// The pattern.
    pub pattern: String,
    /// Cause.
    #[source]
    pub source: regex::Error,
}

/// Replaces the values in requests and records that differ between two runs of the same agent.
#[derive(Clone)]
pub struct RequestNormalizer {
    rules: Vec<(Cow<'static, str>, Regex)>,
    redaction: Option<RedactionRules>,
}

impl fmt::Debug for RequestNormalizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestNormalizer").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

impl RequestNormalizer {
    /// Creates a normalizer with the built-in rules and the patterns `ignored`; fails on an invalid pattern.
    pub fn new(ignored: &[String]) -> Result<Self, NormalizerError> {
        let ignored = ignored.iter().map(|pattern| ("<ignored>", pattern.as_str()));
        let rules = ignored.chain(RULES).map(|(mark, pattern)| match Regex::new(pattern) {
            Ok(rule) => Ok((Cow::from(mark), rule)),
            Err(source) => Err(NormalizerError { pattern: pattern.to_owned(), source }),
        });
        Ok(Self { rules: rules.collect::<Result<_, _>>()?, redaction: None })
    }

    /// Also redacts requests, for recordings with redacted bodies.
    #[must_use]
    pub fn with_redaction(self, redaction: RedactionRules) -> Self {
        Self { redaction: Some(redaction), ..self }
    }

    /// Returns `text` with every variable value replaced by its mark.
    pub fn normalize_text(&self, text: &str) -> String {
        let mut text = Cow::Borrowed(text);
        for (mark, rule) in &self.rules {
            if let Cow::Owned(changed) = rule.replace_all(&text, regex::NoExpand(mark)) {
                text = Cow::Owned(changed);
            }
        }
        text.into_owned()
    }

    /// Normalizes every string in `value`, except field names.
    pub fn normalize_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.normalize_text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.normalize_value(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.normalize_value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Returns the normalized request; a body that is not JSON becomes one string.
    pub(super) fn normalize_request(&self, body: &[u8]) -> Value {
        let redacted = self.redaction.as_ref().map(|redaction| redaction.apply(body));
        let body = redacted.as_deref().unwrap_or(body);
        let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
            return Value::String(self.normalize_text(&String::from_utf8_lossy(body)));
        };
        if let Value::Object(fields) = &mut value {
            fields.retain(|name, _| !RUN_FIELDS.contains(&name.as_str()));
        }
        if let Some(Value::Array(blocks)) = value.get_mut("system") {
            blocks.retain(|block| !block["text"].as_str().is_some_and(|text| text.starts_with(BILLING_PREFIX)));
        }
        self.normalize_value(&mut value);
        value
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(RequestNormalizer::new(&[]).unwrap().normalize_text(text), expected);
    }

    #[test]
    fn times_are_replaced_in_every_format() {
        for time in [
            "2026-11-15",
            "2026-11-15T22:45:28.123Z",
            "2026-11-15 22:45:28 +0000",
            "Sun Nov 15 22:45:28 UTC 2026",
            "Sunday, November 15, 2026",
            "Nov  5 09:01",
            "11/15/2026, 10:46:19 PM",
            "22:45:28",
        ] {
            check(&format!("at {time}."), "at <time>.");
        }
    }

    #[test]
    fn ids_paths_and_durations_are_replaced() {
        check("x 3f2a9c1e-0b7d-4e55-9d1a-1234567890ab y", "x <uuid> y");
        check("toolu_01AbCdEfGh and call_9f8e7d6c", "<id> and <id>");
        check("in /tmp/claude-100000/-workspace/tasks, ok", "in /tmp/<name>, ok");
        check("/tmp/tmp.AbCdEfGhIj", "/tmp/<name>");
        check("Wall time: 0.0512 seconds; took 12ms", "Wall time: <duration>; took <duration>");
        check("Chunk ID: b71d9d", "<id>");
        check("pid:[4026532345]", "<process>");
        check("sha 0123456789abcdef0123", "sha <hex>");
    }

    #[test]
    fn significant_words_and_numbers_are_unchanged() {
        for text in ["may 7 of us", "line 42", "/tmp/notes.txt", "version 2.1.325", "call_me", "7391", "a 5 b"] {
            check(text, text);
        }
    }

    #[test]
    fn fields_that_identify_the_run_are_removed() {
        let normalizer = RequestNormalizer::new(&["run-[a-z]+".to_owned()]).unwrap();
        let one = json!({"model": "m", "metadata": {"user_id": "a"}, "system": [{"text": "x-anthropic-billing-header: cch=1"},
            {"text": "Be kind. run-one"}]});
        let other = json!({"model": "m", "metadata": {"user_id": "b"}, "system": [{"text": "x-anthropic-billing-header: cch=2"},
            {"text": "Be kind. run-two"}]});
        let normalize = |value: &Value| normalizer.normalize_request(value.to_string().as_bytes());
        assert_eq!(normalize(&one), normalize(&other));
        assert_eq!(normalize(&one), json!({"model": "m", "system": [{"text": "Be kind. <ignored>"}]}));
    }
}
