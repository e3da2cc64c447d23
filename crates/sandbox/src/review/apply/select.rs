//! Selection of the changes to apply.

use std::collections::HashMap;
use std::path::Path;

use super::refusal::{RefusalReason, RefusedPath};
use crate::review::{SavedChange, SavedEntry};

/// Returns the changes at or below `paths`, or all of them, with the directories that they need. Paths without a change are
/// returned as refused.
pub(crate) fn select<'a>(
    changes: impl Iterator<Item = &'a SavedChange>,
    paths: Option<&[&Path]>,
) -> (Vec<SavedChange>, Vec<RefusedPath>) {
    let changes: Vec<&SavedChange> = changes.collect();
    let Some(paths) = paths else { return (changes.into_iter().cloned().collect(), Vec::new()) };
    let index: HashMap<&Path, usize> =
        changes.iter().enumerate().map(|(index, change)| (change.path.as_path(), index)).collect();
    let mut wanted = vec![false; changes.len()];
    let mut refusals = Vec::new();
    for path in paths {
        let mut any = false;
        for (change, wanted) in changes.iter().zip(&mut wanted) {
            if change.path.starts_with(path) {
                (any, *wanted) = (true, true);
            }
        }
        if !any {
            refusals.push(RefusedPath { path: path.to_path_buf(), reason: RefusalReason::NotChanged });
            continue;
        }
        for parent in path.ancestors().skip(1).filter_map(|parent| index.get(parent)) {
            if let (Some(change), Some(wanted)) = (changes.get(*parent), wanted.get_mut(*parent)) {
                *wanted |= makes_directory(change);
            }
        }
    }
    let chosen = changes.into_iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(change, _)| change.clone());
    (chosen.collect(), refusals)
}

/// Returns whether the change makes a directory where the host has none.
pub(crate) fn makes_directory(change: &SavedChange) -> bool {
    matches!(change.entry, Some(SavedEntry::Directory { .. })) && !change.base.is_some_and(|base| base.is_directory())
}

/// Returns whether the change removes a directory of the host.
pub(crate) fn removes_directory(change: &SavedChange) -> bool {
    !matches!(change.entry, Some(SavedEntry::Directory { .. })) && change.base.is_some_and(|base| base.is_directory())
}
