//! Converts file changes of all agents to unified diffs.

use std::fmt::Write;

use protocol::{ContentPart, FileAction};
use serde_json::Value;
use similar::TextDiff;

/// Returns a file that was written, with the diff from `old` to `new`.
pub(crate) fn file_written(path: &str, old: &str, new: &str) -> ContentPart {
    let relative = path.trim_start_matches('/');
    let diff = TextDiff::from_lines(old, new)
        .unified_diff()
        .header(&format!("a/{relative}"), &format!("b/{relative}"))
        .to_string();
    let action = if old.is_empty() { FileAction::Write } else { FileAction::Patch };
    ContentPart::FileRef { path: path.to_owned(), action, diff: Some(diff) }
}

/// Names of tools that change one file.
const EDITORS: &[&str] =
    &["create", "edit", "multiedit", "replace", "str_replace", "str_replace_editor", "write", "write_file"];

/// Returns the change that a call of an editing tool requests, if its input is complete. The previous content of the
/// file is not known here, only the text that is replaced.
pub(crate) fn change_from_call(tool: &str, input: &Value) -> Option<ContentPart> {
    if !EDITORS.contains(&tool.to_ascii_lowercase().as_str()) {
        return None;
    }
    change_of_input(input)
}

/// Returns the path of the file that the input of a call names.
pub(crate) fn path_of_input(input: &Value) -> Option<&str> {
    first_text(input, &["file_path", "filePath", "path", "filepath", "fileName", "notebook_path"])
}

/// Returns the change that the input of a call describes, for every tool.
pub(crate) fn change_of_input(input: &Value) -> Option<ContentPart> {
    let path = path_of_input(input)?;
    if let Some(content) = first_text(input, &["content", "file_text", "new_source"]) {
        return Some(file_written(path, "", content));
    }
    let alone = std::slice::from_ref(input);
    let edits: Vec<_> = input["edits"].as_array().map_or(alone, Vec::as_slice).iter().filter_map(edit).collect();
    match edits.as_slice() {
        [] => None,
        [(old, new)] => Some(file_written(path, old, new)),
        several => {
            let body = several.iter().map(|(old, new)| TextDiff::from_lines(*old, *new).unified_diff().to_string());
            Some(file_patched(path, &body.collect::<String>()))
        }
    }
}

fn edit(edit: &Value) -> Option<(&str, &str)> {
    let old = first_text(edit, &["old_string", "oldString", "oldText", "old_str", "old"])?;
    Some((old, first_text(edit, &["new_string", "newString", "newText", "new_str", "new"])?))
}

fn first_text<'a>(input: &'a Value, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| input[*name].as_str())
}

/// Returns a file that was patched; `body` is the body of a unified diff.
pub(crate) fn file_patched(path: &str, body: &str) -> ContentPart {
    let relative = path.trim_start_matches('/');
    let diff = if body.starts_with("---") || body.starts_with("diff ") {
        body.to_owned()
    } else {
        format!("--- a/{relative}\n+++ b/{relative}\n{body}")
    };
    ContentPart::FileRef { path: path.to_owned(), action: FileAction::Patch, diff: Some(diff) }
}

/// Formats hunks of the form `[{oldStart, oldLines, newStart, newLines, lines}]` as the body of a unified diff.
pub(crate) fn hunks(hunks: &[Value]) -> String {
    let mut body = String::new();
    for hunk in hunks {
        let number = |name: &str| hunk[name].as_u64().unwrap_or_default();
        let (old, new) = ((number("oldStart"), number("oldLines")), (number("newStart"), number("newLines")));
        // Writing into a string cannot fail.
        let _ = writeln!(body, "@@ -{},{} +{},{} @@", old.0, old.1, new.0, new.1);
        for line in hunk["lines"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            body.push_str(line);
            body.push('\n');
        }
    }
    body
}

/// Converts lines of the form `-12 old` and `+12 new` to the body of a unified diff. Any other line ends a hunk.
pub(crate) fn from_numbered_lines(lines: &str) -> String {
    let mut body = String::new();
    let mut hunk: Vec<(char, u64, &str)> = Vec::new();
    for line in lines.lines() {
        match numbered(line) {
            Some(line) => hunk.push(line),
            None => end_hunk(&mut body, &mut hunk),
        }
    }
    end_hunk(&mut body, &mut hunk);
    body
}

fn numbered(line: &str) -> Option<(char, u64, &str)> {
    let sign = line.chars().next().filter(|sign| matches!(sign, '-' | '+' | ' '))?;
    let rest = line[1..].trim_start();
    let (number, text) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((sign, number.parse().ok()?, text))
}

fn end_hunk(body: &mut String, hunk: &mut Vec<(char, u64, &str)>) {
    let Some((_, first, _)) = hunk.first().copied() else { return };
    let start = |signs: [char; 2]| hunk.iter().find(|line| signs.contains(&line.0)).map_or(first, |line| line.1);
    let count = |signs: [char; 2]| hunk.iter().filter(|line| signs.contains(&line.0)).count();
    let (old, new) = (['-', ' '], ['+', ' ']);
    // Writing into a string cannot fail.
    let _ = writeln!(body, "@@ -{},{} +{},{} @@", start(old), count(old), start(new), count(new));
    for (sign, _, text) in hunk.drain(..) {
        let _ = writeln!(body, "{sign}{text}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(part: &ContentPart, expected: &str) {
        let ContentPart::FileRef { diff: Some(diff), .. } = part else { panic!("no diff in {part:?}") };
        assert_eq!(diff, expected);
    }

    #[test]
    fn all_forms_of_a_change_become_a_unified_diff() {
        let expected = "--- a/w/e\n+++ b/w/e\n@@ -1,1 +1,1 @@\n-foo\n+bar\n";
        let lines = json!([{ "oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-foo", "+bar"] }]);
        check(&file_patched("/w/e", &hunks(lines.as_array().unwrap())), expected);
        check(&file_patched("/w/e", &from_numbered_lines("-1 foo\n+1 bar")), expected);
        check(&file_written("/w/e", "foo\n", "bar\n"), "--- a/w/e\n+++ b/w/e\n@@ -1 +1 @@\n-foo\n+bar\n");
    }

    #[test]
    fn calls_with_complete_input_become_a_diff() {
        let edit = json!({ "file_path": "/w/e", "old_string": "foo\n", "new_string": "bar\n" });
        let expected = "--- a/w/e\n+++ b/w/e\n@@ -1 +1 @@\n-foo\n+bar\n";
        check(&change_from_call("Edit", &edit).unwrap(), expected);
        let several = json!({ "path": "/w/e", "edits": [{ "oldText": "foo\n", "newText": "bar\n" }] });
        check(&change_from_call("edit", &several).unwrap(), expected);
        let one = json!({ "old_string": "a\n", "new_string": "b\n" });
        let two = json!({ "file_path": "/w/e", "edits": [one, one] });
        let twice = "--- a/w/e\n+++ b/w/e\n@@ -1 +1 @@\n-a\n+b\n@@ -1 +1 @@\n-a\n+b\n";
        check(&change_from_call("MultiEdit", &two).unwrap(), twice);
        let whole = json!({ "filePath": "/w/e", "content": "bar\n" });
        check(&change_from_call("write", &whole).unwrap(), "--- a/w/e\n+++ b/w/e\n@@ -0,0 +1 @@\n+bar\n");
        for (tool, input) in [("Read", &whole), ("edit", &json!({ "path": "/w/e" })), ("write", &json!("x"))] {
            assert_eq!(change_from_call(tool, input), None, "{tool} {input}");
        }
    }

    #[test]
    fn gap_between_lines_starts_a_new_hunk() {
        let lines = "  1 a\n- 2 b\n ...\n+10 c";
        assert_eq!(from_numbered_lines(lines), "@@ -1,2 +1,1 @@\n a\n-b\n@@ -10,0 +10,1 @@\n+c\n");
    }
}
