//! The paths of commits, judged by the same rules as changed files.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::CommitsError;
use super::commit::CommitChange;
use super::list::CommitReader;
use crate::beneath;
use crate::overlay::ChangeKind;
use crate::review::apply::{ApplyCheck, CheckedRules};
use crate::review::classes::{Classifier, HostView};
use crate::review::{ApplyOptions, RefusalReason, RefusedPath, SavedChange, SavedChanges, SavedEntry, WriteRules};

/// The modes of links and submodules in git.
const LINK: u32 = 0o120_000;
const SUBMODULE: u32 = 0o160_000;

/// Sets the class of each path, by the rules of the sandbox's own policy.
pub(crate) fn classify(
    saved: &SavedChanges,
    reader: &CommitReader<'_>,
    changes: &mut [CommitChange],
) -> Result<(), CommitsError> {
    let files = as_saved_changes(saved, reader, changes)?;
    let listed: Vec<&SavedChange> = files.iter().collect();
    let host = HostView::read(saved.workspace(), &listed)?;
    let classifier = Classifier::new(saved, &host, &listed, &[&saved.manifest.denials], &|_| None)?;
    let mut classes = HashMap::new();
    for file in &files {
        let class = classifier.judge(file)?.class();
        classes.insert(file.path.as_path(), (class.name(), class.why()));
    }
    for change in changes {
        if let Some((class, why)) = classes.get(change.path.as_path()) {
            (change.class, change.why) = (*class, why.clone());
        }
    }
    Ok(())
}

/// Returns every reason against writing the paths. Conflicts with the host are left to git.
pub(crate) fn refusals(
    saved: &SavedChanges,
    reader: &CommitReader<'_>,
    changes: &[CommitChange],
    options: &ApplyOptions,
    rules: WriteRules<'_>,
) -> Result<Vec<RefusedPath>, CommitsError> {
    let files = as_saved_changes(saved, reader, changes)?;
    let listed: Vec<&SavedChange> = files.iter().collect();
    let host = HostView::read(saved.workspace(), &listed)?;
    let checked = CheckedRules { options, denials: [&saved.manifest.denials, &options.denials], rules };
    let mut refusals = ApplyCheck::refusals(saved, &host, &listed, &checked)?;
    // A refused file stands for the directories above it.
    let written: HashSet<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
    refusals.retain(|refused| {
        written.contains(refused.path.as_path())
            && !matches!(refused.reason, RefusalReason::Conflict(_) | RefusalReason::ThroughLink)
    });
    let submodules = changes.iter().filter(|change| is_of_submodule(change));
    let refused = |change: &CommitChange| RefusedPath { path: change.path.clone(), reason: RefusalReason::Submodule };
    refusals.extend(submodules.map(refused));
    Ok(refusals)
}

/// Returns whether a change is a submodule, or the list of submodules.
fn is_of_submodule(change: &CommitChange) -> bool {
    let name = change.path.file_name().unwrap_or_default();
    change.mode == SUBMODULE || name.eq_ignore_ascii_case(".gitmodules")
}

/// Returns the changes as changes of files and of the directories that they add, without submodules.
fn as_saved_changes(
    saved: &SavedChanges,
    reader: &CommitReader<'_>,
    changes: &[CommitChange],
) -> Result<Vec<SavedChange>, CommitsError> {
    let targets = link_targets(reader, changes)?;
    let workspace = beneath::root(saved.workspace())?;
    let entry = |change: &CommitChange| match (change.mode, targets.get(change.path.as_path())) {
        (0, _) => None,
        (LINK, Some(target)) => Some(SavedEntry::Symlink { target: target.clone() }),
        (LINK, None) => Some(SavedEntry::Special { mode: change.mode }),
        (mode, _) => Some(SavedEntry::Regular { mode: mode & 0o777, size: 0, sha256: String::new() }),
    };
    let files = changes.iter().filter(|change| !is_of_submodule(change)).map(|change| SavedChange {
        path: change.path.clone(),
        kind: change.kind,
        entry: entry(change),
        base: beneath::stamp(&workspace, &change.path).unwrap_or_default(),
        conflict: false,
    });
    let files: Vec<SavedChange> = files.collect();
    let directories = new_directories(&workspace, &files);
    Ok(directories.into_iter().chain(files).collect())
}

/// Returns the directories that come with `files`. Git has no entries for them, but they can make a repository.
fn new_directories(workspace: &OwnedFd, files: &[SavedChange]) -> Vec<SavedChange> {
    let written = files.iter().filter(|file| file.entry.is_some());
    let parents: BTreeSet<&Path> = written.flat_map(|file| file.path.ancestors().skip(1)).collect();
    let is_new =
        |path: &Path| !path.as_os_str().is_empty() && beneath::stamp(workspace, path).unwrap_or_default().is_none();
    let new = parents.into_iter().filter(|path| is_new(path));
    let entry = Some(SavedEntry::Directory { mode: 0o755 });
    new.map(|path| SavedChange {
        path: path.to_owned(),
        kind: ChangeKind::Added,
        entry: entry.clone(),
        base: None,
        conflict: false,
    })
    .collect()
}

/// Returns the targets of the links that the commits write.
fn link_targets<'a>(
    reader: &CommitReader<'_>,
    changes: &'a [CommitChange],
) -> Result<HashMap<&'a Path, PathBuf>, CommitsError> {
    let links = changes.iter().filter(|change| change.mode == LINK);
    let links: Vec<(&Path, String)> =
        links.filter_map(|change| Some((change.path.as_path(), change.id.clone()?))).collect();
    if links.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<String> = links.iter().map(|(_, id)| id.clone()).collect();
    let targets = links.into_iter().zip(reader.objects(&ids)?);
    Ok(targets.filter_map(|((path, _), target)| Some((path, PathBuf::from(OsStr::from_bytes(&target?))))).collect())
}
