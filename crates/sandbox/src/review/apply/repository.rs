//! What makes git find a repository that the sandbox has furnished.
//!
//! The settings of a repository can name commands, and git runs them for a mere `git status`. A policy denies
//! `.git/config` and the like by name. Here is what has no name that a glob could deny: a `.git` that is not a
//! directory and leads elsewhere, and a directory of any name that git takes for a repository without a work tree.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::refusal::RefusalReason;
use crate::review::{SavedChange, SavedEntry};

const GIT: &str = ".git";
/// What git obeys in such a directory, with everything below.
const OBEYED: [&str; 4] = ["config", "config.worktree", "commondir", "hooks"];
/// What makes it one, each by itself.
const MARKS: [&str; 3] = ["HEAD", "objects", "refs"];

/// Why git must not find this, asking `exists` what will be there when all is applied.
pub(super) fn unfit(change: &SavedChange, exists: &dyn Fn(&Path) -> bool) -> Option<RefusalReason> {
    let entry = change.entry.as_ref()?;
    if change.path.file_name() == Some(OsStr::new(GIT)) {
        return (!matches!(entry, SavedEntry::Directory { .. })).then_some(RefusalReason::GitElsewhere);
    }
    let directory = obeying(&change.path).into_iter().find(|directory| is_repository(directory, exists))?;
    Some(RefusalReason::BareRepository { directory })
}

/// The directories that would obey `path`, were they repositories. Those called `.git` are the policy's.
fn obeying(path: &Path) -> Vec<PathBuf> {
    let named = |path: &Path, names: &[&str]| names.iter().any(|name| path.file_name() == Some(OsStr::new(name)));
    let found = path.ancestors().filter(|part| named(part, &OBEYED) || (*part == path && named(part, &MARKS)));
    let directories = found.filter_map(Path::parent);
    directories.filter(|directory| directory.iter().all(|part| part != GIT)).map(Path::to_owned).collect()
}

/// By what git itself goes by.
fn is_repository(directory: &Path, exists: &dyn Fn(&Path) -> bool) -> bool {
    let has = |name: &str| exists(&directory.join(name));
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}
