//! Other names that links give to a path.
//!
//! A rule names `.git/hooks`. With `.git` made a link to `tools`, a file at `tools/hooks` would be one of
//! them without ever being written under that name, so rules are asked about every name a path will have.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use crate::beneath;
use crate::review::{SavedChange, SavedEntry};
use crate::tree::{VisitNext, visit};

/// A path has at most this many names that are looked at; only links in a circle give more.
const MAX_NAMES: usize = 64;

/// The links of a workspace as they will be: where they lead inside, and from where.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    links: HashMap<PathBuf, Vec<PathBuf>>,
    /// Where links lead that the changes bring.
    pub(crate) brought: Vec<PathBuf>,
}

impl Aliases {
    /// Those the host has, but for what the changes take away, and those the changes bring.
    pub(crate) fn read(workspace: &OwnedFd, place: &Path, changes: &[SavedChange]) -> io::Result<Self> {
        let replaced: HashSet<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
        let mut this = Self::default();
        visit(workspace, Path::new(""), &mut |path, kind| {
            if kind == FileType::Symlink
                && !replaced.contains(path)
                && let Some(target) = beneath::link(workspace, path)?
            {
                this.add(path, leads_to(place, path, &target));
            }
            Ok(VisitNext::Enter)
        })?;
        for change in changes {
            if let Some(SavedEntry::Symlink { target }) = &change.entry {
                let target = leads_to(place, &change.path, target);
                this.brought.extend(target.clone());
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

    /// Every other name of `path`.
    pub(crate) fn names(&self, path: &Path) -> Vec<PathBuf> {
        let mut names = self.names_by_one_link(path);
        let mut looked = 0;
        while let Some(name) = names.get(looked) {
            for other in self.names_by_one_link(name) {
                if names.len() < MAX_NAMES && other != path && !names.contains(&other) {
                    names.push(other);
                }
            }
            looked += 1;
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

/// Where in the workspace at `place` a link leads, by its text alone; `None` when it leads out.
fn leads_to(place: &Path, link: &Path, target: &Path) -> Option<PathBuf> {
    let (from, target) = match target.strip_prefix(place) {
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

/// Whether a link leads, or may lead, out of the workspace. `..` is taken only at the beginning, where it
/// means real directories: after a name it would mean the parent of whatever that name links to.
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

    use super::{Aliases, leads_to, leaves};

    #[test]
    fn links_that_may_lead_out_are_told() {
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
    fn a_path_has_a_name_for_every_link_above_it() {
        let mut aliases = Aliases::default();
        for (link, target) in [(".git", "tools"), ("z", ".git"), ("self", ".")] {
            aliases.add(Path::new(link), leads_to(Path::new("/place"), Path::new(link), Path::new(target)));
        }
        let names = aliases.names(Path::new("tools/hooks/x"));
        for name in [".git/hooks/x", "z/hooks/x", "self/.git/hooks/x", "self/tools/hooks/x"] {
            assert!(names.contains(&name.into()), "{name} in {names:?}");
        }
        assert!(names.len() <= super::MAX_NAMES);
        let inside = leads_to(Path::new("/place"), Path::new("a/l"), Path::new("/place/b"));
        assert_eq!(inside, Some("b".into()));
        assert_eq!(leads_to(Path::new("/place"), Path::new("a/l"), Path::new("/elsewhere")), None);
    }
}
