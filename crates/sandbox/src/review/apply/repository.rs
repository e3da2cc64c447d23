//! Checks against changes that would make git use a repository written by the sandbox.
//!
//! The settings of a repository can name commands, which git runs even for `git status`. A policy denies `.git/config` and
//! similar files by name. The checks here cover two cases that no glob can name: a `.git` that is not a directory and leads
//! elsewhere, and a directory of any name that git takes for a bare repository.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::refusal::RefusalReason;
use crate::review::{SavedChange, SavedEntry};

const GIT: &str = ".git";
/// Entries of a repository that git obeys, with everything below them.
const OBEYED: [&str; 4] = ["config", "config.worktree", "commondir", "hooks"];
/// Entries that make a directory a repository.
const MARKS: [&str; 3] = ["HEAD", "objects", "refs"];

/// Returns the reason against a change. `exists` says whether a path will exist after the apply.
pub(super) fn unfit(change: &SavedChange, exists: &dyn Fn(&Path) -> bool) -> Option<RefusalReason> {
    let entry = change.entry.as_ref()?;
    if change.path.file_name() == Some(OsStr::new(GIT)) {
        return (!matches!(entry, SavedEntry::Directory { .. })).then_some(RefusalReason::GitElsewhere);
    }
    let directory =
        candidate_repositories(&change.path).into_iter().find(|directory| is_repository(directory, exists))?;
    Some(RefusalReason::BareRepository { directory })
}

/// Returns the directories that would obey `path` if they were repositories. Those named `.git` are left to the policy.
fn candidate_repositories(path: &Path) -> Vec<PathBuf> {
    let named = |path: &Path, names: &[&str]| names.iter().any(|name| path.file_name() == Some(OsStr::new(name)));
    let found = path.ancestors().filter(|part| named(part, &OBEYED) || (*part == path && named(part, &MARKS)));
    let directories = found.filter_map(Path::parent);
    directories.filter(|directory| directory.iter().all(|part| part != GIT)).map(Path::to_owned).collect()
}

/// Returns whether git takes `directory` for a repository.
fn is_repository(directory: &Path, exists: &dyn Fn(&Path) -> bool) -> bool {
    let has = |name: &str| exists(&directory.join(name));
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}
