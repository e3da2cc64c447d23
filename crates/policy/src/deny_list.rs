//! Deny-lists. Every layer may add entries; no layer can remove one.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use globset::GlobSet;

use crate::pattern::{PathGlob, build_glob_set};
use crate::rule::WithRule;

/// Patterns that are denied even if an allow-list matches. Clones share their entries, because the built-in lists are
/// long and every layer starts as a clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DenyList<P> {
    entries: Vec<Arc<WithRule<P>>>,
}

impl<P: Ord + Clone> DenyList<P> {
    /// Returns an empty list.
    pub(crate) fn none() -> Self {
        Self { entries: Vec::new() }
    }

    pub(crate) fn new(entries: Vec<WithRule<P>>) -> Self {
        Self::sorted(entries.into_iter().map(Arc::new).collect())
    }

    fn sorted(mut entries: Vec<Arc<WithRule<P>>>) -> Self {
        entries.sort_by(|left, right| left.value.cmp(&right.value));
        entries.dedup_by(|later, first| later.value == first.value);
        Self { entries }
    }

    pub(crate) fn meet(&self, other: &Self) -> Self {
        match (self.entries.is_empty(), other.entries.is_empty()) {
            (_, true) => self.clone(),
            (true, _) => other.clone(),
            _ => Self::sorted(self.entries.iter().chain(&other.entries).cloned().collect()),
        }
    }

    /// Returns the first entry that `is_hit` accepts.
    pub(crate) fn find(&self, is_hit: impl Fn(&P) -> bool) -> Option<&WithRule<P>> {
        self.entries().find(|entry| is_hit(&entry.value))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &WithRule<P>> {
        self.entries.iter().map(|entry| &**entry)
    }
}

/// The globs of a deny-list, compiled into one set on first use. Clones share the set.
#[derive(Debug, Clone)]
pub struct DenyGlobs {
    globs: Arc<[PathGlob]>,
    hides_secrets: bool,
    set: Arc<OnceLock<Option<GlobSet>>>,
}

impl DenyGlobs {
    pub(crate) fn new(list: &DenyList<PathGlob>) -> Self {
        Self {
            globs: list.entries().map(|entry| &entry.value).filter(|glob| !glob.is_secrets()).cloned().collect(),
            hides_secrets: list.find(PathGlob::is_secrets).is_some(),
            set: Arc::default(),
        }
    }

    /// Returns all globs as one set. Without a set, each glob is matched on its own.
    fn set(&self) -> Option<&GlobSet> {
        self.set.get_or_init(|| build_glob_set(&*self.globs)).as_ref()
    }

    /// Returns whether recognised secrets are denied (`<secrets>`). The other methods ignore this entry: whether a file
    /// is a secret depends on its content and on git.
    pub fn hides_secrets(&self) -> bool {
        self.hides_secrets
    }

    /// Returns whether `path`, relative to the workspace, or one of its parent directories is denied.
    pub fn matches(&self, path: &Path) -> bool {
        match self.set() {
            Some(set) => path.ancestors().any(|part| !part.as_os_str().is_empty() && set.is_match(part)),
            None => self.globs.iter().any(|glob| glob.matches(path)),
        }
    }

    /// Returns whether `path` itself is denied. For walks from the top, where the parents were checked before.
    pub fn matches_entry(&self, path: &Path) -> bool {
        self.set().map_or_else(|| self.matches(path), |set| set.is_match(path))
    }

    /// Returns the globs as text.
    pub fn patterns(&self) -> Vec<String> {
        self.globs.iter().map(ToString::to_string).collect()
    }

    /// Returns whether no path is denied by a glob.
    pub fn is_empty(&self) -> bool {
        self.globs.is_empty()
    }
}
