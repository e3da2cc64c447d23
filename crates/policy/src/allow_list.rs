//! Allow-lists and their intersection.
//!
//! A candidate is allowed when *every* list allows it. The intersection therefore keeps all lists, except a list that
//! covers another one. This is exact for every kind of pattern. For patterns that intersect exactly (hosts, paths),
//! `flatten` returns one list.

use crate::pattern::{Intersect, Pattern};
use crate::rule::{RuleRef, WithRule};

/// One allow-list. A candidate is allowed when any entry matches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowList<P> {
    entries: Vec<WithRule<P>>,
    /// The rule of the list's key. It denies a candidate that no entry matches.
    key: WithRule<()>,
}

impl<P: Pattern> AllowList<P> {
    pub(crate) fn new(entries: Vec<WithRule<P>>, key: RuleRef) -> Self {
        Self { entries: remove_covered(entries), key: WithRule::new((), key) }
    }

    fn covers(&self, other: &Self) -> bool {
        other.entries.iter().all(|entry| self.entry_covering(&entry.value).is_some())
    }

    fn entry_covering(&self, pattern: &P) -> Option<&WithRule<P>> {
        self.entries.iter().find(|entry| entry.value.covers(pattern))
    }

    pub(crate) fn entries(&self) -> &[WithRule<P>] {
        &self.entries
    }

    pub(crate) fn rule(&self) -> &RuleRef {
        &self.key.rule
    }
}

/// Sorts the entries and removes duplicates and entries that another entry covers.
fn remove_covered<P: Pattern>(mut entries: Vec<WithRule<P>>) -> Vec<WithRule<P>> {
    entries.sort_by(|left, right| left.value.cmp(&right.value));
    entries.dedup_by(|later, first| later.value == first.value);
    let covered = |entry: &WithRule<P>| {
        entries.iter().any(|other| other.value != entry.value && other.value.covers(&entry.value))
    };
    entries.iter().filter(|entry| !covered(entry)).cloned().collect()
}

/// Several allow-lists, all of which must allow a candidate. Without a list, everything is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowLists<P> {
    lists: Vec<AllowList<P>>,
}

impl<P: Pattern> AllowLists<P> {
    /// Returns lists without an opinion: everything is allowed.
    pub(crate) fn any() -> Self {
        Self { lists: Vec::new() }
    }

    pub(crate) fn one(list: AllowList<P>) -> Self {
        Self { lists: vec![list] }
    }

    pub(crate) fn meet(&self, other: &Self) -> Self {
        let mut lists: Vec<AllowList<P>> = Vec::new();
        for list in self.lists.iter().chain(&other.lists) {
            if !lists.contains(list) {
                lists.push(list.clone());
            }
        }
        let redundant = |list: &AllowList<P>| lists.iter().any(|narrower| narrower != list && list.covers(narrower));
        let mut kept: Vec<_> = lists.iter().filter(|list| !redundant(list)).cloned().collect();
        kept.sort_by(|left, right| patterns(left).cmp(patterns(right)));
        Self { lists: kept }
    }

    /// Returns the entry that allows `candidate`, or `None` if no list has an opinion. Fails with the first list that
    /// does not allow it.
    pub(crate) fn decide(&self, candidate: &P::Candidate) -> Result<Option<&WithRule<P>>, &AllowList<P>> {
        self.find(|pattern| pattern.matches(candidate))
    }

    /// Like `decide`, with `names` as the test of an entry.
    pub(crate) fn find(&self, names: impl Fn(&P) -> bool) -> Result<Option<&WithRule<P>>, &AllowList<P>> {
        let mut found = None;
        for list in &self.lists {
            match list.entries.iter().find(|entry| names(&entry.value)) {
                Some(entry) => found = found.or(Some(entry)),
                None => return Err(list),
            }
        }
        Ok(found)
    }

    /// Returns whether every candidate that `pattern` matches is allowed.
    pub(crate) fn covers(&self, pattern: &P) -> bool {
        self.lists.iter().all(|list| list.entry_covering(pattern).is_some())
    }

    /// Returns the lists with `pattern` added to each.
    pub(crate) fn widened(&self, pattern: &WithRule<P>) -> Self {
        let widen = |list: &AllowList<P>| {
            let entries = list.entries.iter().chain([pattern]).cloned().collect();
            AllowList::new(entries, list.rule().clone())
        };
        let widened = Self { lists: self.lists.iter().map(widen).collect() };
        widened.meet(&Self::any())
    }

    /// Returns the lists with all entries of `other` added to each.
    pub(crate) fn with_entries_of(&self, other: &Self) -> Self {
        other.entries().fold(self.clone(), |lists, entry| lists.widened(entry))
    }

    /// Returns the entries of all lists.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &WithRule<P>> {
        self.lists.iter().flat_map(|list| &list.entries)
    }

    pub(crate) fn lists(&self) -> &[AllowList<P>] {
        &self.lists
    }
}

fn patterns<P: Pattern>(list: &AllowList<P>) -> impl Iterator<Item = &P> {
    list.entries.iter().map(|entry| &entry.value)
}

impl<P: Intersect> AllowLists<P> {
    /// Returns one list with the same meaning; `None` without an opinion.
    pub(crate) fn flatten(&self) -> Option<Vec<WithRule<P>>> {
        let mut lists = self.lists.iter();
        let first = lists.next()?.entries.clone();
        Some(lists.fold(first, |common, list| remove_covered(intersect_entries(&common, &list.entries))))
    }
}

/// Returns the intersection of each pair of entries, with the rule of the narrower entry.
fn intersect_entries<P: Intersect>(left: &[WithRule<P>], right: &[WithRule<P>]) -> Vec<WithRule<P>> {
    let mut common = Vec::new();
    for one in left {
        for other in right {
            if let Some(value) = one.value.intersect(&other.value) {
                let rule = if value == one.value { &one.rule } else { &other.rule };
                common.push(WithRule::new(value, rule.clone()));
            }
        }
    }
    common
}
