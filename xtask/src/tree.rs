//! The files of the repository, for rules to check.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::workspace;

/// All files that git tracks or would track, by path from the root.
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads a checkout. Binary files have an empty text.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        // The checkout may belong to another user.
        let listing = workspace::output(
            Command::new("git")
                .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
                .current_dir(root),
        )?;
        let present = listing.split('\0').filter(|path| !path.is_empty() && root.join(path).is_file());
        let files = present.map(|path| (path.to_owned(), std::fs::read_to_string(root.join(path)).unwrap_or_default()));
        Ok(Self { files: files.collect() })
    }

    /// Returns a tree of the given files.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }

    /// Returns every file with its text, in order of path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns every Rust file with its text.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| has_extension(path, "rs"))
    }

    /// Returns the documents for users.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| {
            let place = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let read = matches!(*path, "README.md" | "ARCHITECTURE.md")
                || place == "bench"
                || place == "docs"
                || place.starts_with("docs/");
            read && has_extension(path, "md")
        })
    }

    /// Returns every package: its folder (empty for the root), the path of its manifest and the manifest's text.
    pub(crate) fn packages(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.files().filter_map(|(path, text)| {
            let folder = path.strip_suffix("Cargo.toml").filter(|folder| folder.is_empty() || folder.ends_with('/'))?;
            text.lines().any(|line| line.trim() == "[package]").then_some((folder.trim_end_matches('/'), path, text))
        })
    }

    /// Returns the text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns whether `path` is a file or a folder with files.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(found, _)| found.starts_with(&folder))
    }
}

/// Returns `folder/path` without `.` and `..`; `None` when it leaves the repository.
pub(crate) fn join(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the folder of a file; empty for the root.
pub(crate) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns whether a path ends in `.extension`.
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_exists_when_it_has_a_file() {
        let tree = Tree::of(&[("docs/errors.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/") && tree.has("docs/errors.md"));
        assert!(!tree.has("doc") && !tree.has("docs/errors"));
    }

    #[test]
    fn path_outside_the_repository_is_none() {
        assert_eq!(join("docs", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(join("docs", "../../x"), None);
    }
}
