//! File changes that a permission request asks for, as diffs that a person can review.
//!
//! Agents describe changes in different ways: the new content, replaced text, a list of edits, a patch, or diffs beside the
//! call. Not here: changes that were made (`diff`).

use protocol::{ContentPart, Permission};
use serde_json::{Map, Value};

use crate::codex::file_change;
use crate::diff;

/// A change of one file that an agent asks to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedChange {
    /// The path as the agent wrote it; empty if a patch contains it.
    pub path: String,
    /// The change as a unified diff, or as the agent's own patch. The file's other content is not known here.
    pub diff: String,
}

/// Input fields that a diff shows.
const SHOWN_FIELDS: &[&str] = &[
    "changes",
    "content",
    "diff",
    "edits",
    "fileName",
    "filePath",
    "file_path",
    "file_text",
    "filepath",
    "new",
    "newString",
    "new_source",
    "new_str",
    "new_string",
    "notebook_path",
    "old",
    "oldString",
    "old_str",
    "old_string",
    "patch",
    "path",
];

/// Returns the changes that `permission` asks for, and the fields of its input that they do not show.
pub fn requested_changes(permission: &Permission) -> (Vec<RequestedChange>, Map<String, Value>) {
    let field = |name: &str| permission.metadata.as_ref().and_then(|metadata| metadata.get(name));
    let input = field("input").and_then(Value::as_object).cloned().unwrap_or_default();
    let beside: Vec<_> = field("changes").and_then(Value::as_array).into_iter().flatten().filter_map(written).collect();
    let changes = if beside.is_empty() { changes_of_input(&input) } else { beside };
    if changes.is_empty() {
        return (changes, input);
    }
    let others = input.into_iter().filter(|(name, _)| !SHOWN_FIELDS.contains(&name.as_str())).collect();
    (changes, others)
}

/// Reads a change that an agent sent beside the input of its call.
fn written(change: &Value) -> Option<RequestedChange> {
    Some(RequestedChange { path: change["path"].as_str()?.to_owned(), diff: change["diff"].as_str()?.to_owned() })
}

fn changes_of_input(input: &Map<String, Value>) -> Vec<RequestedChange> {
    let input = Value::Object(input.clone());
    if let Some(changes) = input["changes"].as_array() {
        return changes.iter().filter_map(|change| Some(of_part(file_change(change)?, moved_to(change)))).collect();
    }
    if let Some(patch) = ["patch", "diff"].iter().find_map(|name| input[*name].as_str()) {
        let path = diff::path_of_input(&input).unwrap_or_default().to_owned();
        return vec![RequestedChange { path, diff: patch.to_owned() }];
    }
    diff::change_of_input(&input).map(|part| of_part(part, None)).into_iter().collect()
}

fn moved_to(change: &Value) -> Option<&str> {
    change["kind"]["move_path"].as_str()
}

fn of_part(part: ContentPart, moved_to: Option<&str>) -> RequestedChange {
    let ContentPart::FileRef { path, diff, .. } = part else {
        return RequestedChange { path: String::new(), diff: String::new() };
    };
    let path = moved_to.map_or_else(|| path.clone(), |target| format!("{path} moved to {target}"));
    RequestedChange { path, diff: diff.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use protocol::PermissionStatus;
    use serde_json::json;

    use super::*;

    fn requested(metadata: Value) -> (Vec<RequestedChange>, Map<String, Value>) {
        requested_changes(&Permission {
            permission_id: "perm_1".parse().unwrap(),
            action: "edit".into(),
            status: PermissionStatus::Requested,
            metadata: Some(metadata),
        })
    }

    #[track_caller]
    fn check(metadata: Value, path: &str, lines: &[&str]) {
        let (changes, _) = requested(metadata);
        assert_eq!(changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), [path]);
        for line in lines {
            assert!(changes[0].diff.lines().any(|shown| shown == *line), "`{line}` in\n{}", changes[0].diff);
        }
    }

    #[test]
    fn every_form_of_an_edit_becomes_a_diff() {
        let edit = json!({"file_path": "/w/a", "old_string": "one\n", "new_string": "two\n"});
        check(json!({"tool": "Edit", "input": edit}), "/w/a", &["-one", "+two"]);
        check(json!({"tool": "Write", "input": {"file_path": "/w/a", "content": "new\n"}}), "/w/a", &["+new"]);
        let edits = json!([{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}]);
        let several = json!({"file_path": "/w/a", "edits": edits});
        check(json!({"tool": "MultiEdit", "input": several}), "/w/a", &["-a", "+b", "-c", "+d"]);
        check(json!({"tool": "edit_file", "input": {"path": "a", "old": "x", "new": "y"}}), "a", &["-x", "+y"]);
        let changes = json!([{"path": "/w/a", "kind": {"type": "add"}, "diff": "line\n"}]);
        check(json!({"tool": "apply_patch", "input": {"changes": changes}}), "/w/a", &["+line"]);
        let moved =
            json!([{"path": "a", "kind": {"type": "update", "move_path": "b"}, "diff": "@@ -1 +1 @@\n-x\n+y\n"}]);
        check(json!({"tool": "apply_patch", "input": {"changes": moved}}), "a moved to b", &["-x", "+y"]);
        let patch = "*** Begin Patch\n*** Delete File: a\n*** End Patch";
        check(json!({"tool": "apply_patch", "input": {"patch": patch}}), "", &["*** Delete File: a"]);
        let beside = json!({"changes": [{"path": "/w/a", "diff": "+content"}], "input": {}});
        check(beside, "/w/a", &["+content"]);
    }

    #[test]
    fn other_fields_are_not_lost() {
        let edit = json!({"file_path": "/a", "old_string": "x", "new_string": "y", "replace_all": true});
        assert_eq!(json!(requested(json!({"input": edit})).1), json!({"replace_all": true}));
        let read = json!({"file_path": "/a", "limit": 3});
        assert_eq!(requested(json!({"input": read})), (Vec::new(), read.as_object().unwrap().clone()));
        assert_eq!(requested(json!("text")), (Vec::new(), Map::new()));
    }
}
