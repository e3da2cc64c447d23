//! The files of the repository, as the rules see them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::workspace;

/// Every file that is tracked or would be, by its path from the root.
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads a checkout. Files that are not text are kept by name, with no content.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        // The checkout may belong to another user than the one who tests it.
        let listing = workspace::output(
            Command::new("git")
                .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
                .current_dir(root),
        )?;
        let present = listing.split('\0').filter(|path| !path.is_empty() && root.join(path).is_file());
        let files = present.map(|path| (path.to_owned(), std::fs::read_to_string(root.join(path)).unwrap_or_default()));
        Ok(Self { files: files.collect() })
    }

    /// A tree made of what a test says.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }

    /// Every file with its text, in order of path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Every Rust file with its text.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| has_extension(path, "rs"))
    }

    /// The documents a reader is sent to.
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

    /// Every package: its folder (empty for the root), the path of its manifest and the manifest's text.
    pub(crate) fn packages(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.files().filter_map(|(path, text)| {
            let folder = path.strip_suffix("Cargo.toml").filter(|folder| folder.is_empty() || folder.ends_with('/'))?;
            text.lines().any(|line| line.trim() == "[package]").then_some((folder.trim_end_matches('/'), path, text))
        })
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether there is a file, or a folder with a file in it, at `path`.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(found, _)| found.starts_with(&folder))
    }
}

/// `folder/path` with `.` and `..` worked out; `None` when it leaves the repository.
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

/// The folder a file is in; empty for the root.
pub(crate) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Whether a path ends in `.extension`.
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_there_when_a_file_is_in_them() {
        let tree = Tree::of(&[("docs/errors.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/") && tree.has("docs/errors.md"));
        assert!(!tree.has("doc") && !tree.has("docs/errors"));
    }

    #[test]
    fn a_path_that_leaves_the_repository_is_none() {
        assert_eq!(join("docs", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(join("docs", "../../x"), None);
    }
}
