//! Deny-lists: any layer may add, none may take away.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use globset::{GlobSet, GlobSetBuilder};

use crate::pattern::PathGlob;
use crate::rule::WithRule;

/// Patterns that are denied whatever is allowed. Copies share their entries: the built-in lists are long, and every
/// layer begins as a copy of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DenyList<P> {
    entries: Vec<Arc<WithRule<P>>>,
}

impl<P: Ord + Clone> DenyList<P> {
    /// Denies nothing.
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

    /// The first entry that `hits`.
    pub(crate) fn find(&self, hits: impl Fn(&P) -> bool) -> Option<&WithRule<P>> {
        self.entries().find(|entry| hits(&entry.value))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &WithRule<P>> {
        self.entries.iter().map(|entry| &**entry)
    }
}

/// Globs of a deny-list, made ready to be asked about many paths: once, when the first is asked about. Copies
/// share it.
#[derive(Debug, Clone)]
pub struct DenyGlobs {
    globs: Arc<[PathGlob]>,
    set: Arc<OnceLock<Option<GlobSet>>>,
}

impl DenyGlobs {
    pub(crate) fn new(list: &DenyList<PathGlob>) -> Self {
        Self { globs: list.entries.iter().map(|entry| entry.value.clone()).collect(), set: Arc::default() }
    }

    /// All of them as one. A set too large to build is asked glob by glob: slower, never weaker.
    fn set(&self) -> Option<&GlobSet> {
        let build = || {
            let mut builder = GlobSetBuilder::new();
            for glob in &*self.globs {
                glob.globs()?.iter().for_each(|glob| _ = builder.add(glob.clone()));
            }
            builder.build().ok()
        };
        self.set.get_or_init(build).as_ref()
    }

    /// Whether `path`, relative to the workspace, or a directory it lies in is denied.
    pub fn matches(&self, path: &Path) -> bool {
        match self.set() {
            Some(set) => path.ancestors().any(|part| !part.as_os_str().is_empty() && set.is_match(part)),
            None => self.globs.iter().any(|glob| glob.matches(path)),
        }
    }

    /// Whether `path` itself is denied, its parents having been asked about before: for walks from the top.
    pub fn matches_entry(&self, path: &Path) -> bool {
        self.set().map_or_else(|| self.matches(path), |set| set.is_match(path))
    }

    /// The globs as they are written.
    pub fn patterns(&self) -> Vec<String> {
        self.globs.iter().map(ToString::to_string).collect()
    }

    /// Whether nothing is denied.
    pub fn is_empty(&self) -> bool {
        self.globs.is_empty()
    }
}
