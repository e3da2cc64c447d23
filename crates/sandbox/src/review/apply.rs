//! Apply: copies saved changes to the host, all of them or none.
//!
//! Every path is checked before any is changed. Then a journal is written, and the changes are made in steps. From any
//! point at which they stop, the steps can be finished or undone. Deletions come first. Originals are kept until the next
//! apply, so that the last one can be undone.
//!
//! The workspace must be on a file system that can exchange two names; all local ones can.

mod aliases;
mod check;
mod context;
mod directory_entry;
mod error;
mod refusal;
mod replace;
mod repository;
mod select;
mod step;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use self::check::check;
use self::context::{ApplyContext, StepError};
use self::select::select;
use self::step::{Step, run, steps};
use super::apply_journal::{ApplyJournal, ApplyState};
use super::manifest::{KnownFile, Manifest, ManifestEntry};
use super::save_lock::SaveLock;
use super::{FileStamp, SavedChange, SavedChanges};
use crate::beneath;

pub use check::{WriteRules, denying_rule};
pub use error::ApplyError;
pub use refusal::{HostDifference, RefusalReason, RefusedPath};

/// The changes that were applied or undone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ApplyReport {
    /// The changes, deletions first.
    pub changes: Vec<SavedChange>,
}

/// Applies the changes at or below `paths`, or all of them, to `workspace`, and removes them from the saved changes.
///
/// `rules` returns the rule of the applying user's policy that denies writing a path. Paths that the sandbox's own policy
/// denies are refused as well. If any change is refused, none is applied.
pub fn apply(
    saved: &mut SavedChanges,
    workspace: &Path,
    paths: Option<&[&Path]>,
    rules: WriteRules<'_>,
) -> Result<ApplyReport, ApplyError> {
    apply_stepwise(saved, workspace, paths, rules, &|| ())
}

/// Completes an apply that was interrupted.
pub fn finish(directory: &Path) -> Result<ApplyReport, ApplyError> {
    finish_stepwise(directory, &|| ())
}

/// Undoes the last apply, finished or interrupted, and makes its changes pending again. Fails without any effect when the
/// host has changed since.
pub fn undo(directory: &Path) -> Result<ApplyReport, ApplyError> {
    undo_stepwise(directory, &|| ())
}

pub(crate) fn apply_stepwise(
    saved: &mut SavedChanges,
    workspace: &Path,
    paths: Option<&[&Path]>,
    rules: WriteRules<'_>,
    before_each: &dyn Fn(),
) -> Result<ApplyReport, ApplyError> {
    let _lock = SaveLock::take(&saved.directory)?;
    let manifest = Manifest::read(&saved.directory)?;
    if manifest.saved_nanos != saved.manifest.saved_nanos {
        return Err(ApplyError::Stale);
    }
    saved.manifest = manifest;
    let last = ApplyJournal::read(&saved.directory)?;
    if last.as_ref().is_some_and(ApplyJournal::is_unfinished) {
        return Err(ApplyError::Unfinished);
    }
    let workspace = workspace.canonicalize()?;
    let (changes, mut refusals) = select(saved.changes(), paths);
    let denials = &saved.manifest.denials;
    let both = |path: &Path| rules(path).or_else(|| denials.rule_denying(path).cloned());
    refusals.extend(check(&beneath::root(&workspace)?, &workspace, &changes, &both)?);
    if !refusals.is_empty() {
        return Err(ApplyError::Refused(refusals));
    }
    if changes.is_empty() {
        return Ok(ApplyReport { changes });
    }
    if let Some(last) = last {
        last.remove(&saved.directory)?;
    }
    let id = uuid::Uuid::new_v4().simple().to_string();
    let mut journal = ApplyJournal { id, workspace, state: ApplyState::Started, changes };
    before_each();
    journal.write(&saved.directory)?;
    match complete(&saved.directory, &mut journal, before_each, ApplyError::stopped) {
        Ok(manifest) => saved.manifest = manifest,
        Err(error) => {
            revert(&saved.directory, &mut journal, before_each)?;
            saved.manifest = Manifest::read(&saved.directory)?;
            return Err(error);
        }
    }
    Ok(ApplyReport { changes: journal.changes })
}

pub(crate) fn finish_stepwise(directory: &Path, before_each: &dyn Fn()) -> Result<ApplyReport, ApplyError> {
    let _lock = SaveLock::take(directory)?;
    let mut journal = ApplyJournal::read(directory)?.ok_or(ApplyError::NothingApplied)?;
    match journal.state {
        ApplyState::Done => {}
        ApplyState::Undoing => return Err(ApplyError::Undoing),
        ApplyState::Started => drop(complete(directory, &mut journal, before_each, ApplyError::half_applied)?),
    }
    Ok(ApplyReport { changes: journal.changes })
}

pub(crate) fn undo_stepwise(directory: &Path, before_each: &dyn Fn()) -> Result<ApplyReport, ApplyError> {
    let _lock = SaveLock::take(directory)?;
    let mut journal = ApplyJournal::read(directory)?.ok_or(ApplyError::NothingApplied)?;
    revert(directory, &mut journal, before_each)?;
    Ok(ApplyReport { changes: journal.changes })
}

/// Takes every remaining step and records the result.
fn complete(
    saved: &Path,
    journal: &mut ApplyJournal,
    before_each: &dyn Fn(),
    stopped: fn(&Path, StepError) -> ApplyError,
) -> Result<Manifest, ApplyError> {
    let context = ApplyContext::open(saved, journal, before_each)?;
    let steps = steps(&journal.changes);
    run(&context, &steps).map_err(|(path, stop)| stopped(path, stop))?;
    context.sync_names(&paths_of(&steps))?;
    let mut manifest = Manifest::read(saved)?;
    record_applied(&mut manifest, &context, &journal.changes)?;
    context.next();
    manifest.write(saved)?;
    context.next();
    drop(context);
    journal.state = ApplyState::Done;
    journal.write(saved)?;
    Ok(manifest)
}

/// Undoes every step, last one first, and makes the changes pending again.
fn revert(saved: &Path, journal: &mut ApplyJournal, before_each: &dyn Fn()) -> Result<(), ApplyError> {
    let context = ApplyContext::open(saved, journal, before_each)?;
    let steps_taken = steps(&journal.changes);
    let applied = journal.state == ApplyState::Done;
    let mut obstacles = Vec::new();
    for step in &steps_taken {
        obstacles.extend(step.obstacle(&context, applied)?.map(|difference| (step.path(), difference)));
    }
    if !obstacles.is_empty() {
        return Err(ApplyError::changed_since(obstacles));
    }
    if journal.state != ApplyState::Undoing {
        let undoing = ApplyJournal { state: ApplyState::Undoing, ..journal.clone() };
        context.next();
        undoing.write(saved)?;
    }
    for step in steps_taken.iter().rev() {
        step.revert(&context).map_err(|stop| ApplyError::half_applied(step.path(), stop))?;
    }
    context.sync_names(&paths_of(&steps_taken))?;
    let mut manifest = Manifest::read(saved)?;
    record_undone(&mut manifest, &context, &journal.changes)?;
    context.next();
    manifest.write(saved)?;
    context.next();
    Ok(journal.remove(saved)?)
}

fn paths_of<'a>(steps: &[Step<'a>]) -> Vec<&'a Path> {
    steps.iter().map(Step::path).collect()
}

/// Removes applied changes from the manifest, and records the files that they left on the host.
fn record_applied(manifest: &mut Manifest, context: &ApplyContext<'_>, changes: &[SavedChange]) -> io::Result<()> {
    let applied: HashMap<&Path, &SavedChange> = changes.iter().map(|change| (change.path.as_path(), change)).collect();
    manifest.changes.retain(|record| applied.get(&*record.change.path).is_none_or(|change| **change != record.change));
    manifest.known.retain(|known| !applied.contains_key(&*known.path));
    for change in changes {
        let left = on_host(context, &change.path)?.filter(|stamp| !stamp.is_directory());
        manifest.known.extend(left.map(|stamp| KnownFile { path: change.path.clone(), stamp }));
    }
    Ok(())
}

/// Makes undone changes pending again, based on the originals as they are now.
fn record_undone(manifest: &mut Manifest, context: &ApplyContext<'_>, changes: &[SavedChange]) -> io::Result<()> {
    let undone: HashSet<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
    manifest.known.retain(|known| !undone.contains(&*known.path));
    let listed: HashSet<_> = manifest.changes.iter().map(|record| record.change.path.clone()).collect();
    let missing = changes.iter().filter(|change| !listed.contains(&change.path));
    manifest.changes.extend(missing.map(|change| ManifestEntry { change: change.clone(), upper: None }));
    for record in manifest.changes.iter_mut().filter(|record| undone.contains(&*record.change.path)) {
        record.change.base = on_host(context, &record.change.path)?;
        record.change.conflict = false;
    }
    manifest.sort();
    Ok(())
}

fn on_host(context: &ApplyContext<'_>, path: &Path) -> io::Result<Option<FileStamp>> {
    match beneath::stamp(&context.workspace, path) {
        Err(error) if beneath::is_absence(error) => Ok(None),
        other => Ok(other?),
    }
}
