//! Apply: copies saved changes to the host, all of them or none.
//!
//! Every path is checked before any is changed. Then a journal is written, and the changes are made in steps. From any
//! point at which they stop, the steps can be finished or undone. Deletions come first. Originals are kept until the next
//! apply, so that the last one can be undone.
//!
//! The workspace must be on a file system that can exchange two names; all local ones can.

mod check;
mod choose;
mod context;
mod directory_entry;
mod error;
mod landing_mode;
mod left_out;
mod options;
mod refusal;
mod replace;
mod select;
mod step;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use self::choose::{ChosenChanges, choose};
use self::context::{ApplyContext, StepError};
use self::step::{Step, run, steps};
use super::apply_journal::{ApplyJournal, ApplyState, ReplacedChanges};
use super::change_set::{SetNote, SetOrigin};
use super::classes::WriteRules;
use super::manifest::{KnownFile, Manifest, ManifestEntry};
use super::save_lock::SaveLock;
use super::set_store::{CurrentSet, SetStore};
use super::{FileStamp, SavedChange, SavedChanges};
use crate::beneath;

pub use check::denying_rule;
pub(crate) use check::{ApplyCheck, CheckedRules};
pub use error::ApplyError;
pub use left_out::LeftOut;
pub use options::ApplyOptions;
pub use refusal::{HostDifference, RefusalReason, RefusedPath};

/// The changes that were applied or undone.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ApplyReport {
    /// The changes, deletions first.
    pub changes: Vec<SavedChange>,
    /// The changes that were left out. Empty for a finished or undone apply.
    #[serde(skip_serializing_if = "LeftOut::is_empty")]
    pub left_out: LeftOut,
}

/// Applies the changes that `options` choose to `workspace`, and removes them from the saved changes.
///
/// `rules` returns the rule of the applying user's policy that denies writing a path. Paths that the sandbox's own policy
/// denies are refused as well. If any change is refused, none is applied, unless the options leave refused changes out.
/// Fails with [`ApplyError::Stale`] when `saved` was opened as the current set and another set is current now. Afterwards
/// `saved` shows the current set: the rest.
pub fn apply(
    saved: &mut SavedChanges,
    workspace: &Path,
    options: &ApplyOptions,
    rules: WriteRules<'_>,
) -> Result<ApplyReport, ApplyError> {
    apply_stepwise(saved, workspace, options, rules, &|| ())
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
    options: &ApplyOptions,
    rules: WriteRules<'_>,
    before_each: &dyn Fn(),
) -> Result<ApplyReport, ApplyError> {
    let _lock = SaveLock::take(&saved.directory)?;
    let current = saved.confirm()?;
    let last = ApplyJournal::read(&saved.directory)?;
    if last.as_ref().is_some_and(ApplyJournal::is_unfinished) {
        return Err(ApplyError::Unfinished);
    }
    let workspace = workspace.canonicalize()?;
    let ChosenChanges { changes, left_out } = choose(saved, &workspace, options, rules)?;
    if changes.is_empty() {
        return Ok(ApplyReport { changes, left_out });
    }
    if let Some(last) = last {
        last.remove(&saved.directory)?;
    }
    let id = uuid::Uuid::new_v4().simple().to_string();
    let replaced = saved.is_earlier(&current).then(|| ReplacedChanges::of(&current, &changes));
    let umask = Some(landing_mode::umask());
    let mut journal = ApplyJournal { id, workspace, state: ApplyState::Started, umask, changes, replaced };
    before_each();
    journal.write(&saved.directory)?;
    match complete(&saved.directory, &mut journal, before_each, ApplyError::stopped) {
        Ok(manifest) => saved.follow(manifest),
        Err(error) => {
            revert(&saved.directory, &mut journal, before_each)?;
            saved.follow(Manifest::read(&saved.directory)?);
            return Err(error);
        }
    }
    Ok(ApplyReport { changes: journal.changes, left_out })
}

pub(crate) fn finish_stepwise(directory: &Path, before_each: &dyn Fn()) -> Result<ApplyReport, ApplyError> {
    let _lock = SaveLock::take(directory)?;
    let mut journal = ApplyJournal::read(directory)?.ok_or(ApplyError::NothingApplied)?;
    match journal.state {
        ApplyState::Done => {}
        ApplyState::Undoing => return Err(ApplyError::Undoing),
        ApplyState::Started => drop(complete(directory, &mut journal, before_each, ApplyError::half_applied)?),
    }
    Ok(ApplyReport { changes: journal.changes, ..ApplyReport::default() })
}

pub(crate) fn undo_stepwise(directory: &Path, before_each: &dyn Fn()) -> Result<ApplyReport, ApplyError> {
    let _lock = SaveLock::take(directory)?;
    let mut journal = ApplyJournal::read(directory)?.ok_or(ApplyError::NothingApplied)?;
    revert(directory, &mut journal, before_each)?;
    Ok(ApplyReport { changes: journal.changes, ..ApplyReport::default() })
}

/// Takes every remaining step and records the result.
fn complete(
    saved: &Path,
    journal: &mut ApplyJournal,
    before_each: &dyn Fn(),
    stopped: fn(&Path, StepError) -> ApplyError,
) -> Result<Manifest, ApplyError> {
    let context = ApplyContext::open(saved, journal, before_each)?;
    let landing = landing_changes(journal);
    let steps = steps(&landing);
    run(&context, &steps).map_err(|(path, stop)| stopped(path, stop))?;
    context.sync_names(&paths_of(&steps))?;
    let mut manifest = Manifest::read(saved)?;
    let (sets, before) = (SetStore::of(saved), CurrentSet::of(&manifest));
    sets.adopt(&manifest)?;
    record_applied(&mut manifest, &context, &journal.changes)?;
    context.next();
    sets.commit(&mut manifest, before, SetOrigin::Apply, &SetNote::default())?;
    context.next();
    drop(context);
    journal.state = ApplyState::Done;
    journal.write(saved)?;
    Ok(manifest)
}

/// Undoes every step, last one first, and makes the changes pending again.
fn revert(saved: &Path, journal: &mut ApplyJournal, before_each: &dyn Fn()) -> Result<(), ApplyError> {
    let context = ApplyContext::open(saved, journal, before_each)?;
    let landing = landing_changes(journal);
    let steps_taken = steps(&landing);
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
    let (sets, before) = (SetStore::of(saved), CurrentSet::of(&manifest));
    sets.adopt(&manifest)?;
    record_undone(&mut manifest, &context, journal)?;
    context.next();
    sets.commit(&mut manifest, before, SetOrigin::Undo, &SetNote::default())?;
    context.next();
    Ok(journal.remove(saved)?)
}

/// Returns the changes with the permissions that they get on the host. A journal of an earlier version has none.
fn landing_changes(journal: &ApplyJournal) -> Vec<SavedChange> {
    let land = |change: &SavedChange| match journal.umask {
        Some(umask) => landing_mode::with_landing_mode(change, umask),
        None => change.clone(),
    };
    journal.changes.iter().map(land).collect()
}

fn paths_of<'a>(steps: &[Step<'a>]) -> Vec<&'a Path> {
    steps.iter().map(Step::path).collect()
}

/// Removes applied changes from the manifest, and records the files that they left on the host. A path to which an earlier
/// set was applied stays, if the current set has another entry for it; the applied file is its base now.
fn record_applied(manifest: &mut Manifest, context: &ApplyContext<'_>, changes: &[SavedChange]) -> io::Result<()> {
    let applied: HashMap<&Path, &SavedChange> = changes.iter().map(|change| (change.path.as_path(), change)).collect();
    let is_done = |change: &SavedChange| applied.get(&*change.path).is_some_and(|done| done.entry == change.entry);
    manifest.changes.retain(|record| !is_done(&record.change));
    for record in manifest.changes.iter_mut().filter(|record| applied.contains_key(&*record.change.path)) {
        let base = on_host(context, &record.change.path)?;
        record.change.rebase(base);
    }
    manifest.changes.retain(|record| record.change.entry.is_some() || record.change.base.is_some());
    manifest.known.retain(|known| !applied.contains_key(&*known.path));
    for change in changes {
        let left = on_host(context, &change.path)?.filter(|stamp| !stamp.is_directory());
        manifest.known.extend(left.map(|stamp| KnownFile { path: change.path.clone(), stamp }));
    }
    Ok(())
}

/// Makes undone changes pending again, based on the originals as they are now. After an apply of an earlier set, those are
/// the changes that were pending before it.
fn record_undone(manifest: &mut Manifest, context: &ApplyContext<'_>, journal: &ApplyJournal) -> io::Result<()> {
    let undone: HashSet<&Path> = journal.changes.iter().map(|change| change.path.as_path()).collect();
    manifest.known.retain(|known| !undone.contains(&*known.path));
    let replaced = journal.replaced.as_ref().filter(|replaced| replaced.saved_nanos == manifest.saved_nanos);
    if let Some(replaced) = replaced {
        manifest.changes.retain(|record| !undone.contains(&*record.change.path));
        manifest.changes.extend(replaced.changes.iter().cloned());
    } else {
        let listed: HashSet<_> = manifest.changes.iter().map(|record| record.change.path.clone()).collect();
        let missing = journal.changes.iter().filter(|change| !listed.contains(&change.path));
        manifest.changes.extend(missing.map(|change| ManifestEntry { change: change.clone(), upper: None }));
    }
    for record in manifest.changes.iter_mut().filter(|record| undone.contains(&*record.change.path)) {
        record.change.base = on_host(context, &record.change.path)?;
        record.change.conflict = false;
    }
    Ok(())
}

fn on_host(context: &ApplyContext<'_>, path: &Path) -> io::Result<Option<FileStamp>> {
    match beneath::stamp(&context.workspace, path) {
        Err(error) if beneath::is_absence(error) => Ok(None),
        other => Ok(other?),
    }
}
