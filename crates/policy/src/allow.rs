//! Allow-lists and how they meet.
//!
//! What several layers allow is what *every* list allows, so the meet of lists is the set of them, less
//! those that cover another one and so add nothing. That is exact for every pattern language; where two
//! patterns always meet in a pattern (hosts, paths), the one list they amount to can be asked for.

use crate::pattern::{Intersect, Pattern};
use crate::rule::{RuleRef, WithRule};

/// One list: what any entry matches is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowList<P> {
    entries: Vec<WithRule<P>>,
    /// The key the list stands under; the rule that denies what no entry matches.
    key: WithRule<()>,
}

impl<P: Pattern> AllowList<P> {
    pub(crate) fn new(entries: Vec<WithRule<P>>, key: RuleRef) -> Self {
        Self { entries: largest(entries), key: WithRule::new((), key) }
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

/// Sorted, each once, without those another one covers.
fn largest<P: Pattern>(mut entries: Vec<WithRule<P>>) -> Vec<WithRule<P>> {
    entries.sort_by(|left, right| left.value.cmp(&right.value));
    entries.dedup_by(|later, first| later.value == first.value);
    let covered = |entry: &WithRule<P>| {
        entries.iter().any(|other| other.value != entry.value && other.value.covers(&entry.value))
    };
    entries.iter().filter(|entry| !covered(entry)).cloned().collect()
}

/// What every one of several lists allows; with no list at all, everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowLists<P> {
    lists: Vec<AllowList<P>>,
}

impl<P: Pattern> AllowLists<P> {
    /// No opinion: allows everything.
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

    /// The entry that allows `subject`, or the list that does not. `None`: no list has an opinion.
    pub(crate) fn decide(&self, subject: &P::Subject) -> Result<Option<&WithRule<P>>, &AllowList<P>> {
        self.find(|pattern| pattern.matches(subject))
    }

    /// Like `decide`, for anything an entry `names` rather than matches.
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

    /// Whether everything `pattern` matches is surely allowed.
    pub(crate) fn covers(&self, pattern: &P) -> bool {
        self.lists.iter().all(|list| list.entry_covering(pattern).is_some())
    }

    /// With `pattern` allowed as well.
    pub(crate) fn widened(&self, pattern: &WithRule<P>) -> Self {
        let widen = |list: &AllowList<P>| {
            let entries = list.entries.iter().chain([pattern]).cloned().collect();
            AllowList::new(entries, list.rule().clone())
        };
        let widened = Self { lists: self.lists.iter().map(widen).collect() };
        widened.meet(&Self::any())
    }

    /// The entries of all lists.
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
    /// The one list they amount to; `None` where there is no opinion.
    pub(crate) fn flatten(&self) -> Option<Vec<WithRule<P>>> {
        let mut lists = self.lists.iter();
        let first = lists.next()?.entries.clone();
        Some(lists.fold(first, |common, list| largest(pairwise(&common, &list.entries))))
    }
}

/// What an entry of each list matches together, named by the rule of the narrower one.
fn pairwise<P: Intersect>(left: &[WithRule<P>], right: &[WithRule<P>]) -> Vec<WithRule<P>> {
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
