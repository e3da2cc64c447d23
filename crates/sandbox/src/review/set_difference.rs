//! The differences between two change sets.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{SavedChanges, SavedEntry, json_path};
use crate::overlay::ChangeKind;

/// A path that differs between two sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetDifference {
    /// Relative to the workspace.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// `added`: changed only in the set that is compared. `deleted`: changed only in the other set. `modified`: changed
    /// in both, in different ways.
    pub kind: ChangeKind,
}

/// Returns the paths that `set` changes in another way than `other`, by path. The host's files do not matter.
pub fn compare_sets(set: &SavedChanges, other: &SavedChanges) -> Vec<SetDifference> {
    let mut others: HashMap<&Path, Option<&SavedEntry>> =
        other.changes().map(|change| (change.path.as_path(), change.entry.as_ref())).collect();
    let mut differences = Vec::new();
    for change in set.changes() {
        let kind = match others.remove(change.path.as_path()) {
            Some(entry) if entry == change.entry.as_ref() => continue,
            Some(_) => ChangeKind::Modified,
            None => ChangeKind::Added,
        };
        differences.push(SetDifference { path: change.path.clone(), kind });
    }
    let only = others.into_keys().map(|path| SetDifference { path: path.to_owned(), kind: ChangeKind::Deleted });
    differences.extend(only);
    differences.sort_by(|a, b| a.path.cmp(&b.path));
    differences
}
