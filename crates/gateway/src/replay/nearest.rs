//! What tells a request that was not recorded from the nearest one that was.
//!
//! A request is laid out as lines, a line for each value and for each line of a text, so that what is shown is the
//! value that changed and not the whole prompt around it.

use std::{collections::HashMap, fmt::Write as _, time::Duration};

use base::Digest;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::endpoint::ModelEndpoint;

/// More lines than this are no help to anybody.
const LINES: usize = 40;
/// A longer line is cut in the middle of what it has in common with its other version.
const COLUMNS: usize = 200;
/// A comparison that takes longer is given up for a coarser one.
const PATIENCE: Duration = Duration::from_secs(2);

/// A request, line by line.
pub(super) struct Outline {
    lines: Vec<String>,
    key: Digest,
}

impl Outline {
    pub(super) fn of(endpoint: ModelEndpoint, path: &str, request: &Value) -> Self {
        let mut lines = vec![format!("{endpoint:?}: {path}")];
        lay_out(request, "", &mut lines);
        let key = Digest::of(lines.join("\n").as_bytes());
        Self { lines, key }
    }

    /// The same for requests that say the same.
    pub(super) fn key(&self) -> Digest {
        self.key
    }

    /// How many lines are the same in both, in whatever order.
    fn shares(&self, other: &HashMap<&str, usize>) -> usize {
        let mut left = other.clone();
        let mut take = |line: &str| match left.get_mut(line) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        };
        self.lines.iter().filter(|line| take(line)).count()
    }
}

fn lay_out(value: &Value, place: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
                lay_out(value, &place, lines);
            }
        }
        Value::Array(values) if !values.is_empty() => {
            for (index, value) in values.iter().enumerate() {
                lay_out(value, &format!("{place}[{index}]"), lines);
            }
        }
        Value::String(text) => {
            // The line's number is left out: one line more must not make all that follow different.
            lines.extend(text.split('\n').map(|line| format!("{place}: {line}")));
        }
        value => lines.push(format!("{place}: {value}")),
    }
}

/// The nearest of `recorded`, and how `asked` differs from it.
pub(super) fn compare<'a>(asked: &Outline, recorded: impl Iterator<Item = (&'a str, &'a Outline)>) -> String {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for line in &asked.lines {
        *counts.entry(line).or_default() += 1;
    }
    let distance = |outline: &Outline| {
        let shared = outline.shares(&counts);
        (asked.lines.len() + outline.lines.len()).saturating_sub(2 * shared)
    };
    match recorded.min_by_key(|(_, outline)| distance(outline)) {
        Some((call, nearest)) => format!("the nearest recorded one is `{call}`:\n{}", difference(nearest, asked)),
        None => "nothing was".to_owned(),
    }
}

fn difference(recorded: &Outline, asked: &Outline) -> String {
    let lines = |outline: &Outline| outline.lines.join("\n") + "\n";
    let (old, new) = (lines(recorded), lines(asked));
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(&old, &new);
    let changes = diff.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal);
    let (mut text, mut left_out) = (String::from("--- recorded\n+++ asked for now\n"), 0_usize);
    for (index, change) in changes.enumerate() {
        if index >= LINES {
            left_out += 1;
            continue;
        }
        let sign = if change.tag() == ChangeTag::Delete { '-' } else { '+' };
        let line: String = change.value().trim_end().chars().take(COLUMNS).collect();
        let _ = writeln!(text, "{sign} {line}");
    }
    if left_out > 0 {
        let _ = writeln!(text, "  and {left_out} lines more");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outline(value: &Value) -> Outline {
        Outline::of(ModelEndpoint::Messages, "POST /v1/messages", value)
    }

    #[test]
    fn the_nearest_is_shown_by_what_differs() {
        let far = outline(&json!({"model": "x", "messages": ["other"]}));
        let near = outline(&json!({"model": "m", "system": "one\ntwo\nthree", "messages": ["hello"]}));
        let asked = outline(&json!({"model": "m", "system": "one\n2\nthree", "messages": ["hello"]}));
        let text = compare(&asked, [("call_a", &far), ("call_b", &near)].into_iter());
        let expected =
            "the nearest recorded one is `call_b`:\n--- recorded\n+++ asked for now\n- system: two\n+ system: 2\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_long_difference_is_bounded() {
        let long = |word: &str| outline(&json!({ "system": format!("{word}\n").repeat(500) }));
        let text = compare(&long(&"a".repeat(5_000)), [("call_a", &long("b"))].into_iter());
        assert!(text.len() < (LINES + 5) * (COLUMNS + 5), "{} bytes", text.len());
        assert!(text.ends_with("lines more\n"));
    }
}
