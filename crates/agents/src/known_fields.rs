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
pub(crate) static CONTROL: LazyLock<KnownFields> = LazyLock::new(|| KnownFields::read(include_str!("../known/control.json")));
/// Codex' app server: what its messages carry as `params`.
pub(crate) static CODEX: LazyLock<KnownFields> = LazyLock::new(|| KnownFields::read(include_str!("../known/codex.json")));
/// pi in its RPC mode.
pub(crate) static PI: LazyLock<KnownFields> = LazyLock::new(|| KnownFields::read(include_str!("../known/pi.json")));

/// The fields of every kind of message of one protocol.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct KnownFields(BTreeMap<String, FieldTree>);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum FieldTree {
    /// These fields, also of each entry where it is a list.
    Fields(BTreeMap<String, FieldTree>),
    /// Whatever comes.
    Any(#[expect(dead_code, reason = "always a star")] char),
}

impl KnownFields {
    fn read(table: &str) -> Self {
        serde_json::from_str(table).unwrap_or_default()
    }

    /// The places in a message of that kind where a field stands that nobody knows, as paths of field names. A kind that
    /// is not in the table has none: it is the dialogue that does not know it.
    pub(crate) fn unknown_fields(&self, kind: &str, said: &Value) -> Vec<String> {
        let mut unknown = Vec::new();
        if let Some(shape) = self.0.get(kind) {
            shape.collect_unknown(said, &mut Vec::new(), &mut unknown);
        }
        unknown
    }
}

impl FieldTree {
    fn collect_unknown<'a>(&self, said: &'a Value, path: &mut Vec<&'a str>, unknown: &mut Vec<String>) {
        let Self::Fields(known) = self else { return };
        match said {
            Value::Object(fields) => {
                for (name, value) in fields {
                    path.push(name);
                    match known.get(name) {
                        Some(shape) => shape.collect_unknown(value, path, unknown),
                        None => unknown.push(path.join(".")),
                    }
                    path.pop();
                }
            }
            Value::Array(entries) => entries.iter().for_each(|entry| self.collect_unknown(entry, path, unknown)),
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
        let known = KnownFields::read(r#"{"a": {"b": {"c": {}}, "any": "*"}}"#);
        let unknown = |said: Value| known.unknown_fields("a", &said);
        assert_eq!(strays(json!({ "b": [{ "c": 1 }, { "c": null }], "any": { "x": [{}] } })), [""; 0]);
        assert_eq!(strays(json!({ "b": [{ "c": 1, "d": 2 }], "e": 3 })), ["b.d", "e"]);
        assert_eq!(strays(json!({ "b": { "c": { "f": 1 } } })), ["b.c.f"]);
        assert_eq!(known.unknown_fields("another", &json!({ "b": 1, "x": 2 })), [""; 0]);
    }
}
