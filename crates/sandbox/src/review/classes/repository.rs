//! Checks against changes that would make git use a repository written by the sandbox.
//!
//! The settings of a repository can name commands, which git runs even for `git status`. So no file of a git directory is
//! applied. Two further cases are not named by a glob: a `.git` that is not a directory and leads elsewhere, and a directory
//! of any name that git takes for a bare repository.

use std::path::{Path, PathBuf};

use super::folded_name::folded;
use super::host_view::HostView;
use crate::review::{RefusalReason, SavedChange, SavedEntry};

/// Entries of a repository that git obeys, with everything below them.
const OBEYED: [&str; 4] = ["config", "config.worktree", "commondir", "hooks"];
/// Entries that make a directory a repository.
const MARKS: [&str; 3] = ["head", "objects", "refs"];

/// Returns the part of a path up to the first git directory in it; `None` when it has none.
pub(super) fn git_part(path: &Path) -> Option<PathBuf> {
    let is_git = |part: &Path| part.file_name().is_some_and(|name| folded(Path::new(name)).iter().any(|n| n == ".git"));
    path.ancestors().filter(|part| is_git(part)).last().map(Path::to_owned)
}

/// Returns the reason against a change of a `.git`, or of a path below one.
pub(super) fn git_refusal(change: &SavedChange, host: &HostView) -> Option<RefusalReason> {
    let git = git_part(&change.path)?;
    match &change.entry {
        Some(SavedEntry::Directory { .. }) | None if git == change.path => {
            let is_new = change.entry.is_some() && !host.has_directory(&git);
            is_new.then_some(RefusalReason::InsideGitDirectory { directory: git })
        }
        _ if git == change.path => Some(RefusalReason::GitElsewhere),
        _ => Some(RefusalReason::InsideGitDirectory { directory: git }),
    }
}

/// Returns the directory that a change makes a bare repository. `exists` says whether a path, with its last name folded, will
/// exist after the apply.
pub(super) fn bare_repository(change: &SavedChange, exists: &dyn Fn(&Path, &str) -> bool) -> Option<RefusalReason> {
    change.entry.as_ref()?;
    let is_repository = |directory: &PathBuf| {
        let has = |name: &str| exists(directory, name);
        has("head") && (has("commondir") || (has("objects") && has("refs")))
    };
    let directory = candidate_repositories(&change.path).into_iter().find(is_repository)?;
    Some(RefusalReason::BareRepository { directory })
}

/// Returns the directories that would obey `path` if they were repositories.
fn candidate_repositories(path: &Path) -> Vec<PathBuf> {
    let named = |path: &Path, names: &[&str]| {
        let short = path.file_name().map(|name| folded(Path::new(name)));
        short.is_some_and(|short| names.iter().any(|name| short == Path::new(name)))
    };
    let found = path.ancestors().filter(|part| named(part, &OBEYED) || (*part == path && named(part, &MARKS)));
    found.filter_map(Path::parent).map(Path::to_owned).collect()
}
