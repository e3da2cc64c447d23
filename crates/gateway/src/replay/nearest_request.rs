//! The difference between a request that was not recorded and the most similar recorded one.
//!
//! A request is flattened into lines, one for each value and for each line of a text. The difference then shows the value
//! that changed and not the whole prompt around it.

use std::{collections::HashMap, fmt::Write as _, time::Duration};

use base::Digest;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::endpoint::ModelEndpoint;

/// Maximum number of lines in a difference.
const MAX_LINES: usize = 40;
/// Longer lines are truncated.
const MAX_COLUMNS: usize = 200;
/// After this time the diff algorithm falls back to a coarser result.
const DIFF_TIMEOUT: Duration = Duration::from_secs(2);

/// A request as a list of lines.
pub(super) struct RequestOutline {
    lines: Vec<String>,
    key: Digest,
}

impl RequestOutline {
    pub(super) fn new(endpoint: ModelEndpoint, path: &str, request: &Value) -> Self {
        let mut lines = vec![format!("{endpoint:?}: {path}")];
        add_lines(request, "", &mut lines);
        let key = Digest::of(lines.join("\n").as_bytes());
        Self { lines, key }
    }

    /// Returns the digest of the lines; equal requests have equal keys.
    pub(super) fn key(&self) -> Digest {
        self.key
    }

    /// Returns how many lines are in both, in any order; `other` counts each line of the other request.
    fn count_shared_lines(&self, other: &HashMap<&str, usize>) -> usize {
        let mut remaining = other.clone();
        let mut take = |line: &str| match remaining.get_mut(line) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        };
        self.lines.iter().filter(|line| take(line)).count()
    }
}

fn add_lines(value: &Value, path: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add_lines(value, &path, lines);
            }
        }
        Value::Array(values) if !values.is_empty() => {
            for (index, value) in values.iter().enumerate() {
                add_lines(value, &format!("{path}[{index}]"), lines);
            }
        }
        Value::String(text) => {
            // Lines have no number, so that one inserted line does not change all lines after it.
            lines.extend(text.split('\n').map(|line| format!("{path}: {line}")));
        }
        value => lines.push(format!("{path}: {value}")),
    }
}

/// Describes how `request` differs from the most similar of `recorded`.
pub(super) fn describe_nearest<'a>(
    request: &RequestOutline,
    recorded: impl Iterator<Item = (&'a str, &'a RequestOutline)>,
) -> String {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for line in &request.lines {
        *counts.entry(line).or_default() += 1;
    }
    let distance = |outline: &RequestOutline| {
        let shared = outline.count_shared_lines(&counts);
        (request.lines.len() + outline.lines.len()).saturating_sub(2 * shared)
    };
    match recorded.min_by_key(|(_, outline)| distance(outline)) {
        Some((call, nearest)) => {
            format!("the most similar recorded request is `{call}`:\n{}", difference(nearest, request))
        }
        None => "the recording has no requests".to_owned(),
    }
}

fn difference(recorded: &RequestOutline, request: &RequestOutline) -> String {
    let lines = |outline: &RequestOutline| outline.lines.join("\n") + "\n";
    let (old, new) = (lines(recorded), lines(request));
    let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(&old, &new);
    let changes = diff.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal);
    let (mut text, mut omitted) = (String::from("--- recorded\n+++ requested now\n"), 0_usize);
    for (index, change) in changes.enumerate() {
        if index >= MAX_LINES {
            omitted += 1;
            continue;
        }
        let sign = if change.tag() == ChangeTag::Delete { '-' } else { '+' };
        let line: String = change.value().trim_end().chars().take(MAX_COLUMNS).collect();
        let _ = writeln!(text, "{sign} {line}");
    }
    if omitted > 0 {
        let _ = writeln!(text, "  ({omitted} more lines)");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outline(value: &Value) -> RequestOutline {
        RequestOutline::new(ModelEndpoint::Messages, "POST /v1/messages", value)
    }

    #[test]
    fn difference_from_the_most_similar_request_is_described() {
        let far = outline(&json!({"model": "x", "messages": ["other"]}));
        let near = outline(&json!({"model": "m", "system": "one\ntwo\nthree", "messages": ["hello"]}));
        let request = outline(&json!({"model": "m", "system": "one\n2\nthree", "messages": ["hello"]}));
        let text = describe_nearest(&request, [("call_a", &far), ("call_b", &near)].into_iter());
        let expected = "the most similar recorded request is `call_b`:\n--- recorded\n+++ requested now\n- system: two\n+ system: 2\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn long_difference_is_truncated() {
        let long = |word: &str| outline(&json!({ "system": format!("{word}\n").repeat(500) }));
        let text = describe_nearest(&long(&"a".repeat(5_000)), [("call_a", &long("b"))].into_iter());
        assert!(text.len() < (MAX_LINES + 5) * (MAX_COLUMNS + 5), "{} bytes", text.len());
        assert!(text.ends_with("more lines)\n"));
    }
}
