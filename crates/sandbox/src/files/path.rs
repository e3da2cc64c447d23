//! Resolution of a caller's path to a path without links.
//!
//! Links are read and followed here, one component at a time. The result is checked against the policy and opened without
//! following links, so a link that is swapped meanwhile makes that open fail.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use base::WORKSPACE;

use super::FilesError;
use super::error::AtPath;
use crate::beneath;

/// The most links in one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Whether a link at the end of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLink {
    /// The target of the link is meant.
    Followed,
    /// The link itself is meant.
    NotFollowed,
}

/// Returns `path` relative to the workspace. Fails when it contains `..` or is outside of the workspace.
pub(super) fn relative(path: &Path, at: &Path) -> Result<PathBuf, FilesError> {
    let outside = || FilesError::Outside(path.to_owned());
    let within = if path.is_absolute() { below(path, at).ok_or_else(outside)? } else { path };
    if within.as_os_str().as_bytes().contains(&0) {
        return Err(outside());
    }
    let mut relative = PathBuf::new();
    for part in within.components() {
        match part {
            Component::Normal(name) => relative.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(outside()),
        }
    }
    Ok(relative)
}

/// Returns an absolute path relative to the workspace, which is inside at `at` and at `/workspace`.
fn below<'a>(path: &'a Path, at: &Path) -> Option<&'a Path> {
    path.strip_prefix(WORKSPACE).or_else(|_| path.strip_prefix(at)).ok()
}

/// Returns `path` below `root` without links. Its last components need not exist.
pub(super) fn resolve(root: &OwnedFd, at: &Path, path: &Path, last: LastLink) -> Result<PathBuf, FilesError> {
    let mut remaining: VecDeque<OsString> = relative(path, at)?.iter().map(OsStr::to_owned).collect();
    let (mut real, mut links) = (PathBuf::new(), 0);
    while let Some(part) = remaining.pop_front() {
        if part == ".." {
            if !real.pop() {
                return Err(FilesError::Outside(path.to_owned()));
            }
            continue;
        }
        let next = real.join(&part);
        let is_link_itself = remaining.is_empty() && last == LastLink::NotFollowed;
        let target = if is_link_itself { None } else { beneath::link(root, &next).at_path(&next)? };
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
        for part in parts(&target, at).ok_or_else(|| FilesError::Outside(path.to_owned()))?.into_iter().rev() {
            remaining.push_front(part);
        }
    }
    Ok(real)
}

/// Returns the components of a link's target; `None` for an absolute target outside of the workspace.
fn parts(target: &Path, at: &Path) -> Option<Vec<OsString>> {
    let within = if target.is_absolute() { below(target, at)? } else { target };
    let names = within.components().filter(|part| !matches!(part, Component::CurDir));
    Some(names.map(|part| part.as_os_str().to_owned()).collect())
}

/// Returns whether a link at `path` with `target` stays in the workspace, judged by its text alone.
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
    fn check_relative(path: &str, expected: Option<&str>) {
        assert_eq!(relative(Path::new(path), Path::new("/srv/p")).ok(), expected.map(PathBuf::from), "{path}");
    }

    #[test]
    fn path_outside_of_the_workspace_is_refused() {
        check_relative("a/b", Some("a/b"));
        check_relative("./a//b/.", Some("a/b"));
        check_relative("/workspace/a", Some("a"));
        check_relative("/workspace", Some(""));
        check_relative("/srv/p/a", Some("a"));
        check_relative("", Some(""));
        for path in
            ["..", "a/../b", "/etc/passwd", "/workspaces/a", "/srv/pp", "/srv/p/../x", "/workspace/../etc", "/", "a\0b"]
        {
            check_relative(path, None);
        }
    }

    #[test]
    fn links_are_followed_only_within_the_workspace() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("real/deep")).unwrap();
        for (target, link) in [
            ("real", "in"),
            ("../real", "real/up"),
            ("/workspace/real/deep", "absolute"),
            ("/srv/p/real/deep", "own"),
            ("../..", "real/deep/out"),
            ("/etc", "etc"),
            ("loop", "loop"),
            ("nowhere/at/all", "dangling"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let root = beneath::root(&directory.path().canonicalize().unwrap()).unwrap();
        let check = |path: &str, expected: Option<&str>| {
            let found = resolve(&root, Path::new("/srv/p"), Path::new(path), LastLink::Followed).ok();
            assert_eq!(found, expected.map(PathBuf::from), "{path}");
        };
        check("in/deep/file", Some("real/deep/file"));
        check("in/up/up/deep", Some("real/deep"));
        check("absolute/x", Some("real/deep/x"));
        check("own/x", Some("real/deep/x"));
        check("real/deep/out", Some(""));
        check("dangling", Some("nowhere/at/all"));
        check("etc/passwd", None);
        check("loop", None);
        assert_eq!(
            resolve(&root, Path::new("/srv/p"), Path::new("in/up"), LastLink::NotFollowed).unwrap(),
            Path::new("real/up")
        );
        std::fs::remove_file(at("real/deep/out")).unwrap();
        symlink("../../../x", at("real/deep/out")).unwrap();
        check("real/deep/out", None);
    }

    #[test]
    fn link_of_an_archive_is_judged_by_its_text() {
        assert!(stays_inside(Path::new("a/b"), Path::new("../c")) && stays_inside(Path::new("a"), Path::new("b/../c")));
        assert!(
            !stays_inside(Path::new("a/b"), Path::new("../../c")) && !stays_inside(Path::new("a"), Path::new("/b"))
        );
    }
}
