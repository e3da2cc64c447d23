//! The steps of an apply: removals first, then directories, then files.
//!
//! Every step can be repeated, and can be undone whether or not it was taken.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, chmodat, chownat, fchmod, mkdirat, unlinkat};
use rustix::io::Errno;

use super::context::{ApplyContext, StepError};
use super::directory_entry::{DirectoryEntry, owner_like};
use super::refusal::HostDifference;
use super::replace::Replace;
use super::select::{makes_directory, removes_directory};
use crate::beneath;
use crate::review::{FileStamp, SavedChange, SavedEntry};

/// The permissions that the owner needs to work in a directory.
const OWNER: u32 = 0o700;
/// The number of files that are staged before they are written to disk together.
const BATCH: usize = 512;
/// Fewer files than this are written to disk one by one.
const FEW: usize = 16;

/// One step of an apply.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    RemoveDirectory { path: &'a Path, mode: u32 },
    MakeDirectory { path: &'a Path, mode: u32 },
    SetMode { path: &'a Path, before: u32, after: u32 },
    Replace(Replace<'a>),
}

/// Returns the steps of a set of changes. They are always the same for the same changes.
pub(crate) fn steps(changes: &[SavedChange]) -> Vec<Step<'_>> {
    let mut sorted: Vec<&SavedChange> = changes.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut steps = Vec::new();
    // A directory gains permissions before its entries are changed, and loses permissions afterwards.
    let opens = |before: u32, after: u32| before & OWNER != OWNER && after & OWNER == OWNER;
    let modes = || sorted.iter().filter_map(|change| mode_change(change));
    steps.extend(modes().filter(|(_, before, after)| opens(*before, *after)).map(set_mode));
    for change in sorted.iter().rev() {
        steps.extend(removal(change, steps.len()));
    }
    for change in sorted.iter().filter(|change| makes_directory(change)) {
        steps.push(Step::MakeDirectory { path: &change.path, mode: directory_mode(change) | OWNER });
    }
    for change in &sorted {
        steps.extend(writing(change, steps.len()));
    }
    let closing: Vec<_> = modes()
        .filter(|(_, before, after)| !opens(*before, *after))
        .chain(sorted.iter().filter(|change| makes_directory(change)).filter_map(|change| {
            let mode = directory_mode(change);
            (mode & OWNER != OWNER).then_some((change.path.as_path(), mode | OWNER, mode))
        }))
        .collect();
    steps.extend(closing.into_iter().rev().map(set_mode));
    steps
}

fn set_mode((path, before, after): (&Path, u32, u32)) -> Step<'_> {
    Step::SetMode { path, before, after }
}

fn directory_mode(change: &SavedChange) -> u32 {
    match change.entry {
        Some(SavedEntry::Directory { mode }) => mode & 0o777,
        _ => 0o755,
    }
}

/// Returns the old and new permissions of a directory that stays a directory.
fn mode_change(change: &SavedChange) -> Option<(&Path, u32, u32)> {
    let base = change.base.filter(FileStamp::is_directory)?;
    let Some(SavedEntry::Directory { mode }) = change.entry else { return None };
    Some((&change.path, base.mode & 0o777, mode & 0o777))
}

fn removal(change: &SavedChange, number: usize) -> Option<Step<'_>> {
    let base = change.base?;
    if removes_directory(change) {
        return Some(Step::RemoveDirectory { path: &change.path, mode: base.permissions() });
    }
    let goes = !base.is_directory() && matches!(change.entry, None | Some(SavedEntry::Directory { .. }));
    goes.then_some(Step::Replace(Replace { number, path: &change.path, before: Some(base), after: None }))
}

fn writing(change: &SavedChange, number: usize) -> Option<Step<'_>> {
    let after = change
        .entry
        .as_ref()
        .filter(|entry| matches!(entry, SavedEntry::Regular { .. } | SavedEntry::Symlink { .. }))?;
    let before = change.base.filter(|base| !base.is_directory());
    Some(Step::Replace(Replace { number, path: &change.path, before, after: Some(after) }))
}

impl<'a> Step<'a> {
    pub(crate) fn path(&self) -> &'a Path {
        match self {
            Self::RemoveDirectory { path, .. } | Self::MakeDirectory { path, .. } | Self::SetMode { path, .. } => path,
            Self::Replace(replace) => replace.path,
        }
    }

    fn run(&self, context: &ApplyContext<'_>) -> Result<(), StepError> {
        match *self {
            Self::RemoveDirectory { path, .. } => remove_directory(context, path),
            Self::MakeDirectory { path, mode } => make_directory(context, path, mode),
            Self::SetMode { path, after, .. } => change_mode(context, path, after),
            Self::Replace(replace) => {
                if let Some(file) = replace.stage(context)? {
                    file.sync_all()?;
                }
                replace.swap(context)
            }
        }
    }

    /// Undoes this step, if it was taken.
    pub(crate) fn revert(&self, context: &ApplyContext<'_>) -> Result<(), StepError> {
        match *self {
            Self::RemoveDirectory { path, mode } => make_directory(context, path, mode),
            Self::MakeDirectory { path, .. } => match remove_directory(context, path) {
                // Another process has files in it.
                Err(StepError::Conflict(HostDifference::NotEmpty)) => Ok(()),
                other => other,
            },
            Self::SetMode { path, before, .. } => change_mode(context, path, before),
            Self::Replace(replace) => replace.revert(context),
        }
    }

    /// Returns why `revert` would stop, or leave something that was `applied`. While not everything is applied, a new file
    /// of another process may be the reason why the apply stopped.
    pub(crate) fn obstacle(&self, context: &ApplyContext<'_>, applied: bool) -> io::Result<Option<HostDifference>> {
        match self {
            Self::Replace(replace) if applied || replace.before.is_some() => replace.obstacle(context),
            _ => Ok(None),
        }
    }
}

/// Takes all steps that were not taken yet; stops at the first that fails.
pub(crate) fn run<'a>(context: &ApplyContext<'_>, steps: &[Step<'a>]) -> Result<(), (&'a Path, StepError)> {
    let writes = |step: &Step<'_>| matches!(step, Step::Replace(replace) if replace.after.is_some());
    for group in steps.chunk_by(|one, two| writes(one) == writes(two)) {
        for batch in group.chunks(BATCH) {
            if batch.len() < FEW || !batch.first().is_some_and(writes) {
                batch.iter().try_for_each(|step| step.run(context).map_err(|stop| (step.path(), stop)))?;
            } else {
                run_together(context, batch)?;
            }
        }
    }
    Ok(())
}

/// Stages many files, writes them to disk in one call, and then moves them into place.
fn run_together<'a>(context: &ApplyContext<'_>, batch: &[Step<'a>]) -> Result<(), (&'a Path, StepError)> {
    let replaces = || {
        batch.iter().filter_map(|step| match step {
            Step::Replace(replace) => Some(replace),
            _ => None,
        })
    };
    for replace in replaces() {
        replace.stage(context).map_err(|stop| (replace.path, stop))?;
    }
    if let Some(first) = replaces().next() {
        context.sync().map_err(|error| (first.path, error.into()))?;
    }
    replaces().try_for_each(|replace| replace.swap(context).map_err(|stop| (replace.path, stop)))
}

fn make_directory(context: &ApplyContext<'_>, path: &Path, mode: u32) -> Result<(), StepError> {
    let place = DirectoryEntry::find(&context.workspace, path)?;
    let owner = owner_like(&place)?;
    context.next();
    match mkdirat(&place.directory, &place.name, Mode::from_raw_mode(0o700)) {
        Ok(()) => {}
        Err(Errno::EXIST) if place.stamp()?.is_some_and(|now| now.is_directory()) => {}
        Err(Errno::EXIST) => return Err(StepError::Conflict(HostDifference::Appeared)),
        Err(error) => return Err(error.into()),
    }
    if let Some((user, group)) = owner {
        chownat(&place.directory, &place.name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    set_permissions(&place, mode)
}

fn remove_directory(context: &ApplyContext<'_>, path: &Path) -> Result<(), StepError> {
    let place = match DirectoryEntry::find(&context.workspace, path) {
        Err(error) if beneath::is_absence(error) => return Ok(()),
        other => other?,
    };
    context.next();
    match unlinkat(&place.directory, &place.name, AtFlags::REMOVEDIR) {
        // The directory was removed before, and a file or link of this apply may have its name.
        Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Err(StepError::Conflict(HostDifference::NotEmpty)),
        Err(error) => Err(error.into()),
    }
}

fn change_mode(context: &ApplyContext<'_>, path: &Path, mode: u32) -> Result<(), StepError> {
    let place = match DirectoryEntry::find(&context.workspace, path) {
        Err(error) if beneath::is_absence(error) => return Ok(()),
        other => other?,
    };
    context.next();
    set_permissions(&place, mode)
}

/// Sets the permissions of a directory and keeps its set-id and sticky bits. Does nothing when it is not a directory.
fn set_permissions(place: &DirectoryEntry, mode: u32) -> Result<(), StepError> {
    let Some(now) = place.stamp()?.filter(FileStamp::is_directory) else { return Ok(()) };
    let mode = Mode::from_raw_mode(now.mode & 0o7000 | mode & 0o7777);
    match beneath::directory(&place.directory, Path::new(&place.name)) {
        Ok(directory) => fchmod(&directory, mode)?,
        // A directory that cannot be read cannot be opened either.
        Err(Errno::ACCESS) => chmodat(&place.directory, &place.name, mode, AtFlags::empty())?,
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
