//! What an answer that lasts covers: the tool, and the command or the file, without a model's prose.
//!
//! The pattern stands in the request that a person is shown, and a later request is covered when it has the very same
//! one. So it must hold everything that makes two requests different things, and nothing that only describes them.

use serde_json::{Map, Value, json};

/// Where tools say which file they change.
const PATHS: &[&str] = &["file_path", "filePath", "filepath", "fileName", "notebook_path", "path"];
/// Where they say what becomes of it: together with a path these are an edit.
const CONTENTS: &[&str] =
    &["content", "diff", "edits", "file_text", "new_source", "new_str", "new_string", "newString", "patch"];
/// Words of the model about its own call.
const PROSE: &[&str] = &["description", "explanation", "justification", "title"];

/// The pattern of one call. Without an input it could not be recognized again, and there is none.
pub(crate) fn pattern_of_call(tool: &str, input: &Value) -> Option<Value> {
    let input = input.as_object()?;
    let edits = CONTENTS.iter().any(|name| input.contains_key(*name));
    let path = PATHS.iter().find_map(|name| input.get(*name)?.as_str()).filter(|_| edits);
    if let Some(path) = path {
        return Some(pattern_of_file(tool, path));
    }
    // Only beside a command are they prose: elsewhere they may be what is done.
    let told = input.iter().filter(|(name, _)| !(input.contains_key("command") && PROSE.contains(&name.as_str())));
    let told: Map<String, Value> = told.map(|(name, value)| (name.clone(), value.clone())).collect();
    Some(json!({ "tool": tool, "input": told }))
}

/// The pattern of a change of one file, whatever it changes there.
pub(crate) fn pattern_of_file(tool: &str, path: &str) -> Value {
    json!({ "tool": tool, "path": path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_beside_a_command_is_no_part_of_it() {
        let pattern = |prose: &str| pattern_of_call("Bash", &json!({ "command": "ls", "timeout": 5, "description": prose }));
        assert_eq!(pattern("Lists files"), pattern("Looks around"));
        assert_eq!(pattern("").unwrap(), json!({ "tool": "Bash", "input": { "command": "ls", "timeout": 5 } }));
        assert_ne!(pattern_of_call("Bash", &json!({ "command": "ls" })), pattern_of_call("Bash", &json!({ "command": "ls -l" })));
        assert_ne!(
            pattern_of_call("Task", &json!({ "prompt": "a", "description": "b" })),
            pattern_of_call("Task", &json!({ "prompt": "a", "description": "c" }))
        );
    }

    #[test]
    fn an_edit_is_covered_by_its_file() {
        let pattern = |input: Value| pattern_of_call("Edit", &input).unwrap();
        let edit = json!({ "file_path": "/a", "old_string": "x", "new_string": "y" });
        assert_eq!(pattern(edit), json!({ "tool": "Edit", "path": "/a" }));
        assert_eq!(
            pattern(json!({ "file_path": "/a", "limit": 3 })),
            json!({ "tool": "Edit", "input": { "file_path": "/a", "limit": 3 } })
        );
        assert_eq!(pattern_of_call("mcp__shop__polish", &json!({})).unwrap(), json!({ "tool": "mcp__shop__polish", "input": {} }));
        assert_eq!(pattern_of_call("Edit", &Value::Null), None);
    }
}
