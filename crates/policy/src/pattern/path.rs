//! Paths inside the sandbox: where they lie, and prefixes of host paths.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use base::WORKSPACE;

use super::{Intersect, Pattern};
use crate::value::BadValue;

/// Made by the sandbox itself; a host path there would be hidden, or would hide ours.
const RESERVED: [&str; 6] = [WORKSPACE, "/deps", "/tmp", "/proc", "/sys", "/dev"];

/// What a path inside the sandbox names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// Something in the workspace, relative to it; empty for the workspace itself.
    Workspace(PathBuf),
    /// Anything else, absolute.
    Elsewhere(PathBuf),
}

/// Finds out what `path` names, without touching any file; a relative path is one in the workspace.
pub(crate) fn locate(path: &Path) -> Result<Location, &'static str> {
    let normal = normalise(path)?;
    if normal.is_relative() {
        return Ok(Location::Workspace(normal));
    }
    match normal.strip_prefix(WORKSPACE) {
        Ok(inside) => Ok(Location::Workspace(inside.to_owned())),
        Err(_) => Ok(Location::Elsewhere(normal)),
    }
}

/// The path without `.` and doubled slashes. `..` is refused rather than resolved: what it leads to
/// depends on symbolic links, which are not looked at here.
fn normalise(path: &Path) -> Result<PathBuf, &'static str> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Err("a path cannot hold a NUL byte");
    }
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => return Err("a path with `..` is refused: write where it leads"),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    Ok(normal)
}

/// A host path and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathPrefix(PathBuf);

impl PathPrefix {
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue::new(format!("`{text}` cannot be shown in a sandbox: {why}"));
        if text.starts_with('~') {
            return Err(bad("`~` is not expanded").with_help("write the path from the root"));
        }
        if !text.starts_with('/') {
            return Err(bad("it is not absolute").with_help("write the path from the root, as in `/usr`"));
        }
        if text.contains(['*', '?', '[', '{']) {
            return Err(bad("it is a pattern").with_help("name a directory: everything below it is meant"));
        }
        let path = normalise(Path::new(text)).map_err(bad)?;
        if path == Path::new("/") {
            return Err(bad("it is the whole host").with_help("name the directories that are needed, as in `/usr`"));
        }
        match RESERVED.iter().find(|reserved| path.starts_with(reserved)) {
            Some(reserved) => Err(bad(&format!("`{reserved}` inside is the sandbox's own"))),
            None => Ok(Self(path)),
        }
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }
}

impl Pattern for PathPrefix {
    type Subject = Path;

    fn matches(&self, path: &Path) -> bool {
        path.starts_with(&self.0)
    }

    fn covers(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

impl Intersect for PathPrefix {
    fn intersect(&self, other: &Self) -> Option<Self> {
        if self.covers(other) { Some(other.clone()) } else { other.covers(self).then(|| self.clone()) }
    }
}

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Location, PathPrefix, locate};

    #[test]
    fn paths_are_placed_without_looking_at_files() {
        assert_eq!(locate(Path::new("src//./a.rs")), Ok(Location::Workspace("src/a.rs".into())));
        assert_eq!(locate(Path::new("/workspace/src")), Ok(Location::Workspace("src".into())));
        assert_eq!(locate(Path::new("/workspace")), Ok(Location::Workspace("".into())));
        assert_eq!(locate(Path::new("/workspaces")), Ok(Location::Elsewhere("/workspaces".into())));
        assert!(locate(Path::new("src/../../etc")).is_err());
        assert!(locate(Path::new("a\0b")).is_err());
    }

    #[test]
    fn a_prefix_is_a_directory_and_not_a_text() {
        let usr = PathPrefix::parse("/usr/").unwrap();
        assert_eq!(usr.to_string(), "/usr");
        for text in ["/", "//", "usr", "~/x", "/usr/*", "/usr/../etc", "/proc/1", "/workspace/x", "/dev"] {
            assert!(PathPrefix::parse(text).is_err(), "{text}");
        }
    }
}
