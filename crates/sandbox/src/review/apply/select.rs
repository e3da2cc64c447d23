//! Selection of the changes to apply.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::refusal::{RefusalReason, RefusedPath};
use crate::review::{SavedChange, SavedEntry};

/// Returns the changes at or below `paths`, or all of them, with the directories that they need. Paths without a change are
/// returned as refused.
pub(crate) fn select<'a>(changes: &[&'a SavedChange], paths: &[PathBuf]) -> (Vec<&'a SavedChange>, Vec<RefusedPath>) {
    if paths.is_empty() {
        return (changes.to_vec(), Vec::new());
    }
    let (mut wanted, mut refusals) = (HashSet::new(), Vec::new());
    for path in paths {
        let found = changes.iter().filter(|change| change.path.starts_with(path));
        let found: Vec<&Path> = found.map(|change| change.path.as_path()).collect();
        if found.is_empty() {
            refusals.push(RefusedPath { path: path.clone(), reason: RefusalReason::NotChanged });
        }
        wanted.extend(found);
    }
    let chosen = changes.iter().copied().filter(|change| wanted.contains(change.path.as_path())).collect();
    (with_directories(chosen, changes), refusals)
}

/// Returns `chosen` with the directories that must be made for them, in the order of `all`.
pub(crate) fn with_directories<'a>(chosen: Vec<&'a SavedChange>, all: &[&'a SavedChange]) -> Vec<&'a SavedChange> {
    let made: HashSet<&Path> =
        all.iter().filter(|change| makes_directory(change)).map(|change| change.path.as_path()).collect();
    let mut wanted: HashSet<&Path> = HashSet::new();
    for change in &chosen {
        wanted.insert(&change.path);
        // A directory above is known when one below it is.
        let above = change.path.ancestors().skip(1);
        wanted.extend(above.filter(|parent| made.contains(parent)));
    }
    all.iter().copied().filter(|change| wanted.contains(change.path.as_path())).collect()
}

/// Removes changes that make no sense without those that are left out: entries of a directory that is not made, the removal
/// of a directory that keeps entries, and new directories that would be empty only because their entries are left out.
pub(crate) fn without_remnants<'a>(kept: Vec<&'a SavedChange>, all: &[&'a SavedChange]) -> Vec<&'a SavedChange> {
    let staying: HashSet<&Path> = kept.iter().map(|change| change.path.as_path()).collect();
    let (mut lost_directories, mut above_kept_entries, mut above_left_out) =
        (HashSet::new(), HashSet::new(), HashSet::new());
    for change in all.iter().filter(|change| !staying.contains(change.path.as_path())) {
        if makes_directory(change) {
            lost_directories.insert(change.path.as_path());
        }
        let above = || change.path.ancestors().skip(1);
        if change.entry.is_none() {
            above_kept_entries.extend(above());
        }
        above_left_out.extend(above());
    }
    let is_lost =
        |change: &SavedChange| change.path.ancestors().skip(1).any(|parent| lost_directories.contains(parent));
    let holds_more =
        |change: &SavedChange| change.entry.is_none() && above_kept_entries.contains(change.path.as_path());
    let mut result: Vec<&SavedChange> =
        kept.into_iter().filter(|change| !is_lost(change) && !holds_more(change)).collect();
    // From the deepest path up, so that the entries of a directory are known before the directory.
    let mut deepest_first = result.clone();
    deepest_first.sort_by(|a, b| b.path.cmp(&a.path));
    let (mut needed, mut empty): (HashSet<&Path>, HashSet<&Path>) = (HashSet::new(), HashSet::new());
    for change in deepest_first {
        let path = change.path.as_path();
        if makes_directory(change) && above_left_out.contains(path) && !needed.contains(path) {
            empty.insert(path);
        } else {
            needed.extend(path.ancestors().skip(1));
        }
    }
    result.retain(|change| !empty.contains(change.path.as_path()));
    result
}

/// Returns whether the change makes a directory where the host has none.
pub(crate) fn makes_directory(change: &SavedChange) -> bool {
    matches!(change.entry, Some(SavedEntry::Directory { .. })) && !change.base.is_some_and(|base| base.is_directory())
}

/// Returns whether the change removes a directory of the host.
pub(crate) fn removes_directory(change: &SavedChange) -> bool {
    !matches!(change.entry, Some(SavedEntry::Directory { .. })) && change.base.is_some_and(|base| base.is_directory())
}
