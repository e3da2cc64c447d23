//! Locations of paths inside the sandbox, and prefixes of host paths.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use base::WORKSPACE;

use super::{Intersect, Pattern};
use crate::value::InvalidValue;

/// Directories that the sandbox mounts itself. A host path cannot be mounted there.
const RESERVED: [&str; 6] = [WORKSPACE, "/deps", "/tmp", "/proc", "/sys", "/dev"];

/// The location of a path inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathLocation {
    /// A path in the workspace, relative to it; empty for the workspace itself.
    Workspace(PathBuf),
    /// Any other absolute path.
    Elsewhere(PathBuf),
}

/// Returns the location of `path` without file access. A relative path is in the workspace.
pub(crate) fn locate(path: &Path) -> Result<PathLocation, &'static str> {
    let normal = normalise(path)?;
    if normal.is_relative() {
        return Ok(PathLocation::Workspace(normal));
    }
    match normal.strip_prefix(WORKSPACE) {
        Ok(inside) => Ok(PathLocation::Workspace(inside.to_owned())),
        Err(_) => Ok(PathLocation::Elsewhere(normal)),
    }
}

/// Removes `.` and duplicate slashes. `..` is rejected, because its target depends on symbolic links, which are not
/// followed here.
fn normalise(path: &Path) -> Result<PathBuf, &'static str> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Err("a path cannot contain a NUL byte");
    }
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => return Err("a path with `..` is not allowed: write the path it leads to"),
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
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let bad = |why: &str| InvalidValue::new(format!("`{text}` cannot be mounted in a sandbox: {why}"));
        if text.starts_with('~') {
            return Err(bad("`~` is not expanded").with_help("write an absolute path"));
        }
        if !text.starts_with('/') {
            return Err(bad("it is not absolute").with_help("write an absolute path, as in `/usr`"));
        }
        if text.contains(['*', '?', '[', '{']) {
            return Err(bad("it is a pattern").with_help("name a directory: everything below it is included"));
        }
        let path = normalise(Path::new(text)).map_err(bad)?;
        if path == Path::new("/") {
            return Err(bad("it is the whole host").with_help("name the directories that are needed, as in `/usr`"));
        }
        match RESERVED.iter().find(|reserved| path.starts_with(reserved)) {
            Some(reserved) => Err(bad(&format!("`{reserved}` is reserved inside the sandbox"))),
            None => Ok(Self(path)),
        }
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }
}

impl Pattern for PathPrefix {
    type Candidate = Path;

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

    use super::{PathLocation, PathPrefix, locate};

    #[test]
    fn paths_are_located_without_file_access() {
        assert_eq!(locate(Path::new("src//./a.rs")), Ok(PathLocation::Workspace("src/a.rs".into())));
        assert_eq!(locate(Path::new("/workspace/src")), Ok(PathLocation::Workspace("src".into())));
        assert_eq!(locate(Path::new("/workspace")), Ok(PathLocation::Workspace("".into())));
        assert_eq!(locate(Path::new("/workspaces")), Ok(PathLocation::Elsewhere("/workspaces".into())));
        assert!(locate(Path::new("src/../../etc")).is_err());
        assert!(locate(Path::new("a\0b")).is_err());
    }

    #[test]
    fn a_prefix_matches_whole_directory_names() {
        let usr = PathPrefix::parse("/usr/").unwrap();
        assert_eq!(usr.to_string(), "/usr");
        for text in ["/", "//", "usr", "~/x", "/usr/*", "/usr/../etc", "/proc/1", "/workspace/x", "/dev"] {
            assert!(PathPrefix::parse(text).is_err(), "{text}");
        }
    }
}
