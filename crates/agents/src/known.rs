//! What each protocol is known to say, field by field: more than that is drift.
//!
//! The tables in `known/` come from recorded conversations with the measured versions, the one of Codex from the schema
//! that it prints of itself. A message kind is a tree of field names; `"*"` stands for whatever comes, such as the input
//! of a tool. The ACP agents need none: their protocol has types.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

/// Claude Code's control protocol.
pub(crate) static CONTROL: LazyLock<Known> = LazyLock::new(|| Known::read(include_str!("../known/control.json")));
/// Codex' app server: what its messages carry as `params`.
pub(crate) static CODEX: LazyLock<Known> = LazyLock::new(|| Known::read(include_str!("../known/codex.json")));
/// pi in its RPC mode.
pub(crate) static PI: LazyLock<Known> = LazyLock::new(|| Known::read(include_str!("../known/pi.json")));

/// The fields of every kind of message of one protocol.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Known(BTreeMap<String, Shape>);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Shape {
    /// These fields, also of each entry where it is a list.
    Fields(BTreeMap<String, Shape>),
    /// Whatever comes.
    Any(#[expect(dead_code, reason = "always a star")] char),
}

impl Known {
    fn read(table: &str) -> Self {
        serde_json::from_str(table).unwrap_or_default()
    }

    /// The places in a message of that kind where a field stands that nobody knows, as paths of field names. A kind that
    /// is not in the table has none: it is the dialogue that does not know it.
    pub(crate) fn strays(&self, kind: &str, said: &Value) -> Vec<String> {
        let mut strays = Vec::new();
        if let Some(shape) = self.0.get(kind) {
            shape.compare(said, &mut Vec::new(), &mut strays);
        }
        strays
    }
}

impl Shape {
    fn compare<'a>(&self, said: &'a Value, path: &mut Vec<&'a str>, strays: &mut Vec<String>) {
        let Self::Fields(known) = self else { return };
        match said {
            Value::Object(fields) => {
                for (name, value) in fields {
                    path.push(name);
                    match known.get(name) {
                        Some(shape) => shape.compare(value, path, strays),
                        None => strays.push(path.join(".")),
                    }
                    path.pop();
                }
            }
            Value::Array(entries) => entries.iter().for_each(|entry| self.compare(entry, path, strays)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_table_is_one() {
        for (table, kind) in [(&CONTROL, "assistant"), (&CODEX, "item/started"), (&PI, "message_end")] {
            assert!(table.0.contains_key(kind), "{kind}");
        }
    }

    #[test]
    fn a_field_that_nobody_knows_is_found_wherever_it_stands() {
        let known = Known::read(r#"{"a": {"b": {"c": {}}, "any": "*"}}"#);
        let strays = |said: Value| known.strays("a", &said);
        assert_eq!(strays(json!({ "b": [{ "c": 1 }, { "c": null }], "any": { "x": [{}] } })), [""; 0]);
        assert_eq!(strays(json!({ "b": [{ "c": 1, "d": 2 }], "e": 3 })), ["b.d", "e"]);
        assert_eq!(strays(json!({ "b": { "c": { "f": 1 } } })), ["b.c.f"]);
        assert_eq!(known.strays("another", &json!({ "b": 1, "x": 2 })), [""; 0]);
    }
}
