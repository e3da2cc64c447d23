//! File tools. They change real files and report a unified diff.

use std::path::{Component, Path};
use std::{fs, io};

use protocol::{ContentPart, FileAction};
use similar::TextDiff;

use crate::tool::CallResult;

/// Writes a whole file, and creates its directories.
pub(crate) fn write(workspace: &Path, path: &str, content: &str) -> CallResult {
    let target = workspace.join(path);
    let before = match fs::read(&target) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return CallResult::failed(format!("cannot read `{path}`: {error}")),
    };
    write_with_diff(&target, path, &before, content, FileAction::Write)
}

/// Replaces `old` by `new` if `old` occurs exactly once.
pub(crate) fn edit(workspace: &Path, path: &str, old: &str, new: &str) -> CallResult {
    let target = workspace.join(path);
    let before = match fs::read_to_string(&target) {
        Ok(text) => text,
        Err(error) => return CallResult::failed(format!("cannot read `{path}`: {error}")),
    };
    match before.matches(old).count() {
        1 if !old.is_empty() => {
            write_with_diff(&target, path, &before, &before.replacen(old, new, 1), FileAction::Patch)
        }
        count => CallResult::failed(format!("the text to replace occurs {count} times in `{path}`, expected 1")),
    }
}

/// Returns whether `path` is below the workspace and contains no `..`.
pub(crate) fn is_inside(workspace: &Path, path: &str) -> bool {
    let path = Path::new(path);
    let below = path.strip_prefix(workspace).or_else(|_| path.strip_prefix("/workspace")).unwrap_or(path);
    below.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn write_with_diff(target: &Path, path: &str, before: &str, after: &str, action: FileAction) -> CallResult {
    let made = target.parent().map_or(Ok(()), fs::create_dir_all);
    if let Err(error) = made.and_then(|()| fs::write(target, after)) {
        return CallResult::failed(format!("cannot write `{path}`: {error}"));
    }
    let diff = TextDiff::from_lines(before, after)
        .unified_diff()
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    let part = ContentPart::FileRef { path: path.to_owned(), action, diff: Some(diff) };
    CallResult { output: format!("wrote {} bytes to {path}", after.len()), failed: false, parts: vec![part] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_edited_file_has_a_diff() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!write(folder.path(), "deep/a.txt", "one\ntwo\n").failed);
        let outcome = edit(folder.path(), "deep/a.txt", "two", "three");
        assert_eq!(fs::read_to_string(folder.path().join("deep/a.txt")).unwrap(), "one\nthree\n");
        let [ContentPart::FileRef { diff: Some(diff), .. }] = &outcome.parts[..] else { panic!("no file") };
        assert_eq!(diff, "--- a/deep/a.txt\n+++ b/deep/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n");
    }

    #[test]
    fn paths_outside_the_workspace_are_recognised() {
        for (path, inside) in [
            ("a/b", true),
            ("./a", true),
            ("/w/a", true),
            ("/workspace/a", true),
            ("/etc/a", false),
            ("a/../../b", false),
        ] {
            assert_eq!(is_inside(Path::new("/w"), path), inside, "{path}");
        }
    }

    #[test]
    fn ambiguous_edit_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a", "x x");
        for (path, old) in [("a", "x"), ("a", "y"), ("a", ""), ("b", "x")] {
            assert!(edit(folder.path(), path, old, "z").failed, "`{old}` in `{path}`");
        }
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "x x");
    }
}
