//! The choice of the changes that an apply makes: selected, not ignored, and not refused.

use std::collections::HashSet;
use std::path::Path;

use super::check::{ApplyCheck, CheckedRules};
use super::error::ApplyError;
use super::left_out::LeftOut;
use super::options::ApplyOptions;
use super::refusal::{RefusalReason, RefusedPath};
use super::select::{select, with_directories, without_remnants};
use crate::review::classes::{HostView, WriteRules, is_left_to_git};
use crate::review::{SavedChange, SavedChanges};

/// How often refused changes are left out and the rest is checked again: without a refused link, another path may be refused.
const MAX_ROUNDS: usize = 16;

/// The changes of one apply.
pub(crate) struct ChosenChanges {
    pub(crate) changes: Vec<SavedChange>,
    pub(crate) left_out: LeftOut,
}

/// Returns the changes that `options` choose. Fails when one of them is refused, unless refused changes are left out.
pub(crate) fn choose(
    saved: &SavedChanges,
    workspace: &Path,
    options: &ApplyOptions,
    rules: WriteRules<'_>,
) -> Result<ChosenChanges, ApplyError> {
    let all: Vec<&SavedChange> = saved.changes().collect();
    let host = HostView::read(workspace, &all)?;
    let files: Vec<&SavedChange> = all.iter().copied().filter(|change| !is_left_to_git(change, &host)).collect();
    let (selected, mut refusals) = select(&files, &options.paths);
    refusals.extend(unknown_confirmations(&files, options));
    if !refusals.is_empty() {
        return Err(ApplyError::Refused(refusals));
    }
    let is_ignored = |change: &&SavedChange| !options.ignored && host.ignored.contains(&change.path);
    let (ignored, kept): (Vec<_>, Vec<_>) = selected.into_iter().partition(is_ignored);
    let mut left_out = LeftOut { ignored: ignored.len(), refused: Vec::new() };
    let mut kept = without_remnants(with_directories(kept, &files), &all);
    for _ in 0..MAX_ROUNDS {
        let checked = CheckedRules { options, denials: [&saved.manifest.denials, &options.denials], rules };
        let refused = ApplyCheck::refusals(saved, &host, &kept, &checked)?;
        if refused.is_empty() {
            let changes = kept.into_iter().cloned().collect();
            return Ok(ChosenChanges { changes, left_out });
        }
        left_out.refused.extend(refused.iter().cloned());
        if !options.skip_refused {
            break;
        }
        let out: HashSet<&Path> = refused.iter().map(|refused| refused.path.as_path()).collect();
        kept.retain(|change| !out.contains(change.path.as_path()));
        kept = without_remnants(kept, &all);
    }
    Err(ApplyError::Refused(left_out.refused))
}

/// Returns the confirmed paths that name no change, so that a misspelt path is noticed.
fn unknown_confirmations(changes: &[&SavedChange], options: &ApplyOptions) -> Vec<RefusedPath> {
    let names_nothing = |path: &&std::path::PathBuf| {
        let one = ApplyOptions { confirm: vec![(*path).clone()], ..ApplyOptions::default() };
        !changes.iter().any(|change| one.confirms(&change.path))
    };
    let unknown = options.confirm.iter().filter(names_nothing);
    unknown.map(|path| RefusedPath { path: path.clone(), reason: RefusalReason::NotChanged }).collect()
}
