//! Edits one entry of a JSON file with comments, and leaves every other byte.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde_json::Value;

use super::client_file::Edit;

/// Returns `old` with the entry `name` of the object `section` set or removed. Fails for text that is not such an object.
pub(super) fn edited(old: &str, section: &str, name: &str, edit: &Edit) -> Result<String, String> {
    let is_empty = old.trim().is_empty();
    let text = if is_empty { "{}\n" } else { old };
    let root = CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| format!("invalid JSON: {error}"))?;
    let object = root.object_value().ok_or("it does not contain a JSON object")?;
    match edit {
        Edit::Remove => {
            let Some(servers) = object.object_value(section) else { return Ok(old.to_owned()) };
            let Some(entry) = servers.get(name) else { return Ok(old.to_owned()) };
            entry.remove();
            if servers.properties().is_empty()
                && let Some(section) = object.get(section)
            {
                section.remove();
            }
        }
        Edit::Set(entry) => {
            let servers = object.object_value_or_create(section).ok_or(format!("`{section}` is not an object"))?;
            match servers.get(name) {
                Some(existing) if existing.value().is_some_and(|value| is_same(&value.to_string(), entry)) => {
                    return Ok(old.to_owned());
                }
                Some(existing) => existing.set_value(to_input(entry)),
                None => drop(servers.append(name, to_input(entry))),
            }
        }
    }
    Ok(root.to_string())
}

fn is_same(text: &str, entry: &Value) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value == *entry)
}

fn to_input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(to_input).collect()),
        Value::Object(fields) => {
            CstInputValue::Object(fields.iter().map(|(name, value)| (name.clone(), to_input(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(old: &str, edit: &Edit, expected: &str) {
        let new = edited(old, "servers", "ours", edit).unwrap();
        assert_eq!(new, expected);
        assert_eq!(edited(&new, "servers", "ours", edit).unwrap(), new, "a second edit changes the file");
    }

    #[test]
    fn other_bytes_stay_and_removal_restores_the_file() {
        let old = "{\n  // a comment\n  \"z\": 1.50,\n  \"a\": [1,2],\n  \"servers\": {\n    \"x\": {\"command\": \"x\"}\n  }\n}\n";
        let new = "{\n  // a comment\n  \"z\": 1.50,\n  \"a\": [1,2],\n  \"servers\": {\n    \"x\": {\"command\": \"x\"},\n    \"ours\": {\n      \"command\": \"viv\"\n    }\n  }\n}\n";
        check(old, &Edit::Set(json!({"command": "viv"})), new);
        check(new, &Edit::Remove, old);
    }

    #[test]
    fn an_empty_file_gets_an_object() {
        let new = "{\n  \"servers\": {\n    \"ours\": {\n      \"command\": \"viv\"\n    }\n  }\n}\n";
        check("", &Edit::Set(json!({"command": "viv"})), new);
    }

    #[test]
    fn a_file_of_another_shape_is_refused() {
        for bad in ["[]", "{", "{\"servers\": []}", "null"] {
            assert!(edited(bad, "servers", "ours", &Edit::Set(json!({}))).is_err(), "{bad}");
        }
    }
}
