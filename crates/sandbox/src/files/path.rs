//! From what a caller says to a path that holds no link, so that the kernel can be told to follow none.
//!
//! Links are read and followed here, name by name: what they lead to is a path again, judged by the policy like any
//! other and opened without following anything. A link that is swapped meanwhile makes that open fail.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use base::WORKSPACE;

use super::FilesError;
use super::error::About;
use crate::beneath;

/// As many links as the kernel would follow.
const MAX_LINKS: usize = 40;

/// What a link at the end of a path means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// Where it leads.
    Followed,
    /// The link itself.
    AsItIs,
}

/// `path` relative to the workspace, as it was said: without `..`, and not outside.
pub(super) fn named(path: &Path) -> Result<PathBuf, FilesError> {
    let outside = || FilesError::Outside(path.to_owned());
    let within = if path.is_absolute() { path.strip_prefix(WORKSPACE).map_err(|_| outside())? } else { path };
    if within.as_os_str().as_bytes().contains(&0) {
        return Err(outside());
    }
    let mut named = PathBuf::new();
    for part in within.components() {
        match part {
            Component::Normal(name) => named.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(outside()),
        }
    }
    Ok(named)
}

/// The path that `path` leads to below `root`. Its end need not exist.
pub(super) fn real(root: &OwnedFd, path: &Path, last: Last) -> Result<PathBuf, FilesError> {
    let mut ahead: VecDeque<OsString> = named(path)?.iter().map(OsStr::to_owned).collect();
    let (mut real, mut links) = (PathBuf::new(), 0);
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            if !real.pop() {
                return Err(FilesError::Outside(path.to_owned()));
            }
            continue;
        }
        let next = real.join(&part);
        let is_link_itself = ahead.is_empty() && last == Last::AsItIs;
        let target = if is_link_itself { None } else { beneath::link(root, &next).about(&next)? };
        let Some(target) = target else {
            real = next;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return Err(FilesError::LinkLoop(path.to_owned()));
        }
        if target.is_absolute() {
            real.clear();
        }
        for part in parts(&target).ok_or_else(|| FilesError::Outside(path.to_owned()))?.into_iter().rev() {
            ahead.push_front(part);
        }
    }
    Ok(real)
}

/// The names in what a link says; `None` for one that is absolute and outside.
fn parts(target: &Path) -> Option<Vec<OsString>> {
    let within = if target.is_absolute() { target.strip_prefix(WORKSPACE).ok()? } else { target };
    let names = within.components().filter(|part| !matches!(part, Component::CurDir));
    Some(names.map(|part| part.as_os_str().to_owned()).collect())
}

/// Whether a link at `path` that says `target` stays in the workspace, by its words alone.
pub(super) fn stays_inside(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    target.components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::CurDir => true,
        Component::ParentDir => {
            let stays = depth > 0;
            depth = depth.saturating_sub(1);
            stays
        }
        Component::RootDir | Component::Prefix(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn check_named(path: &str, expected: Option<&str>) {
        assert_eq!(named(Path::new(path)).ok(), expected.map(PathBuf::from), "{path}");
    }

    #[test]
    fn a_path_is_in_the_workspace_or_refused() {
        check_named("a/b", Some("a/b"));
        check_named("./a//b/.", Some("a/b"));
        check_named("/workspace/a", Some("a"));
        check_named("/workspace", Some(""));
        check_named("", Some(""));
        for path in ["..", "a/../b", "/etc/passwd", "/workspaces/a", "/workspace/../etc", "/", "a\0b"] {
            check_named(path, None);
        }
    }

    #[test]
    fn links_are_followed_inside_and_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("real/deep")).unwrap();
        for (target, link) in [
            ("real", "in"),
            ("../real", "real/up"),
            ("/workspace/real/deep", "absolute"),
            ("../..", "real/deep/out"),
            ("/etc", "etc"),
            ("loop", "loop"),
            ("nowhere/at/all", "dangling"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let root = beneath::root(&directory.path().canonicalize().unwrap()).unwrap();
        let check = |path: &str, expected: Option<&str>| {
            let found = real(&root, Path::new(path), Last::Followed).ok();
            assert_eq!(found, expected.map(PathBuf::from), "{path}");
        };
        check("in/deep/file", Some("real/deep/file"));
        check("in/up/up/deep", Some("real/deep"));
        check("absolute/x", Some("real/deep/x"));
        check("real/deep/out", Some(""));
        check("dangling", Some("nowhere/at/all"));
        check("etc/passwd", None);
        check("loop", None);
        assert_eq!(real(&root, Path::new("in/up"), Last::AsItIs).unwrap(), Path::new("real/up"));
        std::fs::remove_file(at("real/deep/out")).unwrap();
        symlink("../../../x", at("real/deep/out")).unwrap();
        check("real/deep/out", None);
    }

    #[test]
    fn a_link_of_an_archive_is_judged_by_its_words() {
        assert!(stays_inside(Path::new("a/b"), Path::new("../c")) && stays_inside(Path::new("a"), Path::new("b/../c")));
        assert!(
            !stays_inside(Path::new("a/b"), Path::new("../../c")) && !stays_inside(Path::new("a"), Path::new("/b"))
        );
    }
}
