//! Patterns of permissions: what the answer "always" covers.
//!
//! A person sees the pattern in the request. A later request is covered if its pattern is equal. A pattern therefore
//! contains the tool and the command or file, and no descriptions of the model.

use serde_json::{Map, Value, json};

/// Input fields with the path of a file.
const PATHS: &[&str] = &["file_path", "filePath", "filepath", "fileName", "notebook_path", "path"];
/// Input fields with the new content of a file. Together with a path they mean an edit.
const CONTENTS: &[&str] =
    &["content", "diff", "edits", "file_text", "new_source", "new_str", "new_string", "newString", "patch"];
/// Input fields with the model's description of its call.
const PROSE: &[&str] = &["description", "explanation", "justification", "title"];

/// Returns the pattern of a call; `None` without an input, because the call could not be recognized again.
pub(crate) fn pattern_of_call(tool: &str, input: &Value) -> Option<Value> {
    let input = input.as_object()?;
    let edits = CONTENTS.iter().any(|name| input.contains_key(*name));
    let path = PATHS.iter().find_map(|name| input.get(*name)?.as_str()).filter(|_| edits);
    if let Some(path) = path {
        return Some(pattern_of_file(tool, path));
    }
    // These fields are descriptions only next to a command; in other tools they may define the action.
    let relevant = input.iter().filter(|(name, _)| !(input.contains_key("command") && PROSE.contains(&name.as_str())));
    let relevant: Map<String, Value> = relevant.map(|(name, value)| (name.clone(), value.clone())).collect();
    Some(json!({ "tool": tool, "input": relevant }))
}

/// Returns the pattern of a change of one file. The pattern does not depend on the new content.
pub(crate) fn pattern_of_file(tool: &str, path: &str) -> Value {
    json!({ "tool": tool, "path": path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_of_a_command_is_not_part_of_its_pattern() {
        let pattern =
            |prose: &str| pattern_of_call("Bash", &json!({ "command": "ls", "timeout": 5, "description": prose }));
        assert_eq!(pattern("Lists files"), pattern("Looks around"));
        assert_eq!(pattern("").unwrap(), json!({ "tool": "Bash", "input": { "command": "ls", "timeout": 5 } }));
        assert_ne!(
            pattern_of_call("Bash", &json!({ "command": "ls" })),
            pattern_of_call("Bash", &json!({ "command": "ls -l" }))
        );
        assert_ne!(
            pattern_of_call("Task", &json!({ "prompt": "a", "description": "b" })),
            pattern_of_call("Task", &json!({ "prompt": "a", "description": "c" }))
        );
    }

    #[test]
    fn edit_is_covered_by_its_file() {
        let pattern = |input: Value| pattern_of_call("Edit", &input).unwrap();
        let edit = json!({ "file_path": "/a", "old_string": "x", "new_string": "y" });
        assert_eq!(pattern(edit), json!({ "tool": "Edit", "path": "/a" }));
        assert_eq!(
            pattern(json!({ "file_path": "/a", "limit": 3 })),
            json!({ "tool": "Edit", "input": { "file_path": "/a", "limit": 3 } })
        );
        assert_eq!(
            pattern_of_call("mcp__shop__polish", &json!({})).unwrap(),
            json!({ "tool": "mcp__shop__polish", "input": {} })
        );
        assert_eq!(pattern_of_call("Edit", &Value::Null), None);
    }
}
