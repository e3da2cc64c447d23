//! The links of a workspace after an apply, and the names that they give to other paths.
//!
//! Suppose that a rule names `.cargo/config.toml`. If `.cargo` is a link to `tools`, a file at `tools/config.toml` is a
//! configuration too, without being written under that name. So a link is followed when its own name is part of a name in a
//! rule, and the paths that it leads to are judged under the link's name as well.
//!
//! Only such links are followed, and each is followed once for each set of rules, so the cost is linear in the links.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::name_rules::{GlobsBelow, NameRules, NameVerdict};
use crate::review::{SavedChange, SavedEntry};

/// The most links that one resolution follows. The kernel follows 40, so a longer chain opens nothing.
const MAX_HOPS: usize = 40;
/// The most names of one path that are judged. A path with more names is refused.
const MAX_NAMES: usize = 64;

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    /// A path relative to the workspace, which may not exist.
    Inside(PathBuf),
    /// Out of the workspace.
    Outside,
    /// To itself, or through more links than the kernel follows.
    Nowhere,
}

/// The names of one path.
#[derive(Debug, Default)]
struct OtherNames {
    /// Names that end above a name in a rule: what lies below the path must be judged.
    names: Vec<PathBuf>,
    /// The globs of each of these names.
    globs: HashSet<GlobsBelow>,
    /// A name in a rule, with the verdict. It is the same for everything below the path.
    verdict: Option<(PathBuf, NameVerdict)>,
    /// Whether there are more names than are judged.
    overflow: bool,
}

/// The links of a workspace.
#[derive(Debug, Default)]
pub(crate) struct LinkMap {
    /// The workspace directory on the host.
    root: PathBuf,
    /// The target of each link, as written.
    targets: BTreeMap<PathBuf, PathBuf>,
    /// Links that the changes add.
    added: HashSet<PathBuf>,
    others: HashMap<PathBuf, OtherNames>,
    /// Added links on the way of a link whose name is in a rule.
    on_the_way: HashMap<PathBuf, PathBuf>,
    /// How many links were followed, as a measure of the cost.
    #[cfg(test)]
    pub(crate) followed: usize,
}

impl LinkMap {
    /// Returns the links of the host and of the changes. A path that a change replaces or removes is not a link of the host.
    pub(crate) fn new(root: &Path, host: &[(PathBuf, PathBuf)], changes: &[&SavedChange]) -> Self {
        let replaced: HashSet<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
        let kept = host.iter().filter(|(link, _)| !replaced.contains(link.as_path())).cloned();
        let mut this = Self { root: root.to_owned(), targets: kept.collect(), ..Self::default() };
        for change in changes {
            if let Some(SavedEntry::Symlink { target }) = &change.entry {
                this.targets.insert(change.path.clone(), target.clone());
                this.added.insert(change.path.clone());
            }
        }
        this
    }

    /// Finds the paths that get a name of a rule through links.
    pub(crate) fn find_names(&mut self, rules: &NameRules<'_>) {
        let mut open: Vec<(PathBuf, PathBuf)> = Vec::new();
        for link in self.targets.keys() {
            if !rules.named(link).is_plain() || !rules.above(link).is_plain() {
                open.push((link.clone(), link.clone()));
            }
        }
        while let Some((link, name)) = open.pop() {
            let target = self.follow(&link, &name);
            if let Some(target) = target.filter(|target| self.add_name(rules, target, &name)) {
                open.extend(self.links_below(rules, &target, &name));
            }
        }
    }

    /// Follows a link under one of its names, and remembers the added links on the way.
    fn follow(&mut self, link: &Path, name: &Path) -> Option<PathBuf> {
        #[cfg(test)]
        {
            self.followed += 1;
        }
        let (end, passed) = self.resolve(link);
        for added in passed.into_iter().filter(|passed| self.added.contains(passed) && *passed != link) {
            self.on_the_way.entry(added).or_insert_with(|| name.to_owned());
        }
        match end {
            LinkEnd::Inside(target) => Some(target),
            LinkEnd::Outside | LinkEnd::Nowhere => None,
        }
    }

    /// Adds a name of `target`; returns whether links below it may have names of rules that were not known.
    fn add_name(&mut self, rules: &NameRules<'_>, target: &Path, name: &Path) -> bool {
        let other = self.others.entry(target.to_owned()).or_default();
        let verdict = rules.named(name);
        if !verdict.is_plain() {
            let known = other.verdict.as_ref();
            let is_news = known.is_none_or(|(_, known)| !known.is_refused() && verdict.is_refused());
            if is_news {
                other.verdict = Some((name.to_owned(), verdict));
            }
            return is_news;
        }
        if other.names.len() >= MAX_NAMES {
            other.overflow = true;
            return false;
        }
        let is_new = other.globs.insert(rules.globs_below(name));
        if is_new {
            other.names.push(name.to_owned());
        }
        is_new
    }

    /// Returns the links below `target` that have a name of a rule when `target` is called `name`.
    fn links_below(&self, rules: &NameRules<'_>, target: &Path, name: &Path) -> Vec<(PathBuf, PathBuf)> {
        let below = self.targets.range(target.to_owned()..).map(|(link, _)| link);
        let below = below.take_while(|link| link.starts_with(target)).filter(|link| *link != target);
        let named = below.filter_map(|link| Some((link.clone(), name.join(link.strip_prefix(target).ok()?))));
        named.filter(|(_, name)| !rules.named(name).is_plain() || !rules.above(name).is_plain()).collect()
    }

    /// Returns where a path leads, and the links that it passes.
    fn resolve(&self, path: &Path) -> (LinkEnd, Vec<PathBuf>) {
        let (mut at, mut passed) = (PathBuf::new(), Vec::new());
        let mut rest: Vec<OsString> = Vec::new();
        push(&mut rest, path);
        while let Some(part) = rest.pop() {
            if part == ".." {
                if !at.pop() {
                    return (LinkEnd::Outside, passed);
                }
                continue;
            }
            at.push(part);
            let Some(target) = self.targets.get(&at) else { continue };
            passed.push(at.clone());
            if passed.len() > MAX_HOPS {
                return (LinkEnd::Nowhere, passed);
            }
            at.pop();
            let target = match target.strip_prefix(&self.root) {
                Ok(inside) => {
                    at = PathBuf::new();
                    inside
                }
                Err(_) if target.is_absolute() => return (LinkEnd::Outside, passed),
                Err(_) => target,
            };
            push(&mut rest, target);
        }
        (LinkEnd::Inside(at), passed)
    }

    /// Returns where the link at `path` leads.
    pub(crate) fn end_of(&self, path: &Path) -> LinkEnd {
        self.resolve(path).0
    }

    /// Returns the verdicts about the other names of a path, with these names.
    pub(crate) fn other_names(&self, path: &Path, rules: &NameRules<'_>) -> Vec<(PathBuf, NameVerdict)> {
        let mut found = Vec::new();
        for target in path.ancestors() {
            let Some(other) = self.others.get(target) else { continue };
            // Not by `join`, which would add a slash to the name of the target itself.
            let rest = path.strip_prefix(target).unwrap_or(path);
            let below = |name: &Path| name.iter().chain(rest.iter()).collect::<PathBuf>();
            let names = other.names.iter().map(|name| below(name)).map(|name| (name.clone(), rules.named(&name)));
            let named = other.verdict.iter().map(|(name, verdict)| (below(name), verdict.clone()));
            found.extend(names.chain(named).filter(|(_, verdict)| !verdict.is_plain()));
        }
        if let Some(name) = self.on_the_way.get(path) {
            let verdict = rules.named(name);
            let verdict = if verdict.is_plain() { rules.above(name) } else { verdict };
            found.push((name.clone(), verdict));
        }
        found
    }

    /// Returns whether a path has more names than are judged.
    pub(crate) fn has_too_many_names(&self, path: &Path) -> bool {
        path.ancestors().any(|target| self.others.get(target).is_some_and(|other| other.overflow))
    }
}

/// Puts the parts of a path on a stack, the first one on top.
fn push(stack: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut parts: Vec<OsString> = parts.collect();
    parts.reverse();
    stack.extend(parts);
}

/// Returns whether a link leads, or may lead, out of the workspace, by its text alone. `..` is accepted only at the beginning,
/// where it means real directories: after a name it could mean the parent of a link's target.
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

    use policy::FileDenials;

    use super::super::host_settings::HostSettings;
    use super::*;
    use crate::overlay::ChangeKind;

    fn links(host: &[(&str, &str)], added: &[(&str, &str)]) -> (LinkMap, HostSettings) {
        let host: Vec<_> = host.iter().map(|(link, target)| (link.into(), target.into())).collect();
        let changes: Vec<_> = added.iter().map(|(link, target)| link_change(link, target)).collect();
        (LinkMap::new(Path::new("/place"), &host, &changes.iter().collect::<Vec<_>>()), HostSettings::default())
    }

    fn link_change(path: &str, target: &str) -> SavedChange {
        let entry = Some(SavedEntry::Symlink { target: target.into() });
        SavedChange { path: path.into(), kind: ChangeKind::Added, entry, base: None, conflict: false }
    }

    fn names(host: &[(&str, &str)], added: &[(&str, &str)], path: &str) -> Vec<String> {
        let (mut map, settings) = links(host, added);
        let denials = FileDenials::default();
        let rules = NameRules::new(&[&denials], &|_| None, &settings).unwrap();
        map.find_names(&rules);
        let found = map.other_names(Path::new(path), &rules);
        found.into_iter().map(|(name, _)| name.display().to_string()).collect()
    }

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
    fn path_has_the_names_of_rules_that_links_give_it() {
        assert_eq!(names(&[(".husky", "tools")], &[], "tools/pre-commit"), [".husky/pre-commit"]);
        assert_eq!(names(&[(".cargo", "tools")], &[], "tools/config.toml"), [".cargo/config.toml"]);
        assert_eq!(names(&[(".cargo", "tools")], &[], "tools/other.toml"), [""; 0]);
        // One link leads through another one, and a link lies below the target of another one.
        assert_eq!(names(&[(".cargo", "a/b"), ("a", "c")], &[], "c/b/config"), [".cargo/config"]);
        let both = [(".cargo", "mid"), ("mid/config.toml", "../real.toml")];
        assert_eq!(names(&both, &[], "real.toml"), [".cargo/config.toml"]);
        // An added link changes the way of a link on the host.
        assert_eq!(names(&[(".cargo", "a/b")], &[("a", "c")], "a"), [".cargo"]);
        assert_eq!(names(&[("x/.git", "../tools")], &[], "tools/hooks/x"), ["x/.git/hooks/x"]);
        assert_eq!(names(&[("a", "b"), ("self", ".")], &[], "b/c"), [""; 0]);
    }

    #[test]
    fn ends_of_links_are_found_through_chains() {
        let many: Vec<_> = (0..50).map(|number| (format!("l{number}"), format!("l{}", number + 1))).collect();
        let many: Vec<_> = many.iter().map(|(link, target)| (link.as_str(), target.as_str())).collect();
        let (map, _) = links(&many, &[("in", "/place/x"), ("out", "/etc"), ("up", "in/../.."), ("loop", "loop")]);
        let end = |path: &str| map.end_of(Path::new(path));
        assert_eq!(end("l0"), LinkEnd::Nowhere);
        assert_eq!(end("l20"), LinkEnd::Inside("l50".into()));
        assert_eq!(end("in/y"), LinkEnd::Inside("x/y".into()));
        assert_eq!((end("out"), end("up"), end("loop")), (LinkEnd::Outside, LinkEnd::Outside, LinkEnd::Nowhere));
    }

    #[test]
    fn many_links_are_followed_once_each() {
        let names: Vec<_> = (0..2000).map(|number| format!("package{number}/.cargo")).collect();
        let host: Vec<_> = names.iter().map(|name| (name.as_str(), "../shared")).collect();
        let (mut map, settings) = links(&host, &[]);
        let rules = NameRules::new(&[], &|_| None, &settings).unwrap();
        map.find_names(&rules);
        assert_eq!(map.followed, 2000);
        assert_eq!(map.other_names(Path::new("shared/config.toml"), &rules).len(), 1, "equal names are judged once");
        let circular = [("a/.cargo", "."), ("a/.github", "."), ("a/.yarn", "../a"), ("a/b", ".cargo")];
        let (mut map, settings) = links(&circular, &[]);
        let rules = NameRules::new(&[], &|_| None, &settings).unwrap();
        map.find_names(&rules);
        assert!(map.followed < 1000, "{}", map.followed);
    }
}
