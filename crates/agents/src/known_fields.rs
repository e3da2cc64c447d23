//! Known message fields of each protocol. A field that is not listed is drift: a change of the agent's protocol.
//!
//! The tables in `known/` come from recorded conversations with the tested versions; Codex prints its own schema. A
//! kind of message is a tree of field names. `"*"` allows any value, such as the input of a tool. ACP agents need no
//! table, because their protocol has types.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

/// Control protocol of Claude Code.
pub(crate) static CONTROL: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::read(include_str!("../known/control.json")));
/// Codex app server: the `params` of its messages.
pub(crate) static CODEX: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::read(include_str!("../known/codex.json")));
/// RPC mode of pi.
pub(crate) static PI: LazyLock<KnownFields> = LazyLock::new(|| KnownFields::read(include_str!("../known/pi.json")));

/// The known fields of every kind of message of one protocol.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct KnownFields(BTreeMap<String, FieldTree>);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum FieldTree {
    /// An object with these fields, or a list of such objects.
    Fields(BTreeMap<String, FieldTree>),
    /// Any value.
    Any(#[expect(dead_code, reason = "always a star")] char),
}

impl KnownFields {
    fn read(table: &str) -> Self {
        serde_json::from_str(table).unwrap_or_default()
    }

    /// Returns the paths of unknown fields in a message of this kind. A kind that is not in the table has none; the
    /// dialogue records it as an unknown message.
    pub(crate) fn unknown_fields(&self, kind: &str, message: &Value) -> Vec<String> {
        let mut unknown = Vec::new();
        if let Some(tree) = self.0.get(kind) {
            tree.collect_unknown(message, &mut Vec::new(), &mut unknown);
        }
        unknown
    }
}

impl FieldTree {
    fn collect_unknown<'a>(&self, message: &'a Value, path: &mut Vec<&'a str>, unknown: &mut Vec<String>) {
        let Self::Fields(known) = self else { return };
        match message {
            Value::Object(fields) => {
                for (name, value) in fields {
                    path.push(name);
                    match known.get(name) {
                        Some(tree) => tree.collect_unknown(value, path, unknown),
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
    fn tables_are_parsed() {
        for (table, kind) in [(&CONTROL, "assistant"), (&CODEX, "item/started"), (&PI, "message_end")] {
            assert!(table.0.contains_key(kind), "{kind}");
        }
    }

    #[test]
    fn unknown_fields_are_found_at_any_depth() {
        let known = KnownFields::read(r#"{"a": {"b": {"c": {}}, "any": "*"}}"#);
        let unknown = |message: Value| known.unknown_fields("a", &message);
        assert_eq!(unknown(json!({ "b": [{ "c": 1 }, { "c": null }], "any": { "x": [{}] } })), [""; 0]);
        assert_eq!(unknown(json!({ "b": [{ "c": 1, "d": 2 }], "e": 3 })), ["b.d", "e"]);
        assert_eq!(unknown(json!({ "b": { "c": { "f": 1 } } })), ["b.c.f"]);
        assert_eq!(known.unknown_fields("another", &json!({ "b": 1, "x": 2 })), [""; 0]);
    }
}
