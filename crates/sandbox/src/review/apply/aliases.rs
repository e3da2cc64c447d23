//! Aliases: other names that links give to a path.
//!
//! Suppose that a rule names `.git/hooks`. If `.git` is a link to `tools`, a file at `tools/hooks` is a hook too, without
//! being written under that name. So rules are checked for every name that a path will have.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use crate::beneath;
use crate::review::{SavedChange, SavedEntry};
use crate::tree::{VisitNext, visit};

/// The most names of a path that are checked. Only circular links give more.
const MAX_NAMES: usize = 64;

/// The links of a workspace after the apply, by target.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    links: HashMap<PathBuf, Vec<PathBuf>>,
    /// The targets of links that the changes add.
    pub(crate) new_targets: Vec<PathBuf>,
}

impl Aliases {
    /// Reads the links of the host, without those that the changes replace, and adds those of the changes.
    pub(crate) fn read(workspace: &OwnedFd, root: &Path, changes: &[SavedChange]) -> io::Result<Self> {
        let replaced: HashSet<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
        let mut this = Self::default();
        visit(workspace, Path::new(""), &mut |path, kind| {
            if kind == FileType::Symlink
                && !replaced.contains(path)
                && let Some(target) = beneath::link(workspace, path)?
            {
                this.add(path, target_path(root, path, &target));
            }
            Ok(VisitNext::Enter)
        })?;
        for change in changes {
            if let Some(SavedEntry::Symlink { target }) = &change.entry {
                let target = target_path(root, &change.path, target);
                this.new_targets.extend(target.clone());
                this.add(&change.path, target);
            }
        }
        Ok(this)
    }

    fn add(&mut self, link: &Path, target: Option<PathBuf>) {
        if let Some(target) = target {
            self.links.entry(target).or_default().push(link.to_owned());
        }
    }

    /// Returns every other name of `path`.
    pub(crate) fn names(&self, path: &Path) -> Vec<PathBuf> {
        let mut names = self.names_by_one_link(path);
        let mut checked = 0;
        while let Some(name) = names.get(checked) {
            for other in self.names_by_one_link(name) {
                if names.len() < MAX_NAMES && other != path && !names.contains(&other) {
                    names.push(other);
                }
            }
            checked += 1;
        }
        names
    }

    fn names_by_one_link(&self, path: &Path) -> Vec<PathBuf> {
        let through = |target: &Path| {
            let rest = path.strip_prefix(target).unwrap_or(path).to_owned();
            self.links.get(target).into_iter().flatten().map(move |link| link.join(&rest))
        };
        path.ancestors().flat_map(through).take(MAX_NAMES).collect()
    }
}

/// Returns the target of a link relative to the workspace at `root`, by its text alone; `None` when it leads out.
fn target_path(root: &Path, link: &Path, target: &Path) -> Option<PathBuf> {
    let (from, target) = match target.strip_prefix(root) {
        Ok(inside) => (Path::new(""), inside),
        Err(_) => (link.parent()?, target),
    };
    let mut path = from.to_owned();
    for part in target.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            _ => return None,
        }
    }
    Some(path)
}

/// Returns whether a link leads, or may lead, out of the workspace. `..` is accepted only at the beginning, where it means
/// real directories: after a name it could mean the parent of a link's target.
pub(crate) fn leaves(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count().saturating_sub(1);
    let mut named = false;
    for part in target.components() {
        match part {
            Component::Normal(_) => named = true,
            Component::CurDir => {}
            Component::ParentDir if !named && depth > 0 => depth -= 1,
            _ => return true,
        }
    }
    target.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Aliases, leaves, target_path};

    #[test]
    fn links_that_may_lead_out_are_found() {
        for (link, target) in [("a", "b"), ("a/b/c", "../../d"), ("a", "."), ("a/b", ".."), ("a", "./x/y")] {
            assert!(!leaves(Path::new(link), Path::new(target)), "{link} -> {target}");
        }
        for (link, target) in
            [("a", "/etc"), ("a", ".."), ("a/b", "../../x"), ("a/b", "c/../d"), ("a", "x/../../y"), ("a", "")]
        {
            assert!(leaves(Path::new(link), Path::new(target)), "{link} -> {target}");
        }
    }

    #[test]
    fn path_has_a_name_for_every_link_above_it() {
        let mut aliases = Aliases::default();
        for (link, target) in [(".git", "tools"), ("z", ".git"), ("self", ".")] {
            aliases.add(Path::new(link), target_path(Path::new("/place"), Path::new(link), Path::new(target)));
        }
        let names = aliases.names(Path::new("tools/hooks/x"));
        for name in [".git/hooks/x", "z/hooks/x", "self/.git/hooks/x", "self/tools/hooks/x"] {
            assert!(names.contains(&name.into()), "{name} in {names:?}");
        }
        assert!(names.len() <= super::MAX_NAMES);
        let inside = target_path(Path::new("/place"), Path::new("a/l"), Path::new("/place/b"));
        assert_eq!(inside, Some("b".into()));
        assert_eq!(target_path(Path::new("/place"), Path::new("a/l"), Path::new("/elsewhere")), None);
    }
}
