//! The checks of an apply. Every change is checked before any is applied.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::WORKSPACE;
use policy::{Action, EffectivePolicy, FileDenials, RuleRef};
use rustix::io::Errno;

use super::options::ApplyOptions;
use super::refusal::{HostDifference, RefusalReason, RefusedPath};
use super::select::{makes_directory, removes_directory};
use crate::beneath;
use crate::overlay::ChangeKind;
use crate::review::classes::{Classifier, HostView, WriteRules};
use crate::review::{FileStamp, SavedChange, SavedChanges};

/// Returns the rule of `policy` that denies writing `path`, which is relative to the workspace; `None` when allowed.
pub fn denying_rule(policy: &EffectivePolicy, path: &Path) -> Option<RuleRef> {
    if policy.is_plainly_writable(path) {
        return None;
    }
    let decision = policy.decide(&Action::Write(Path::new(WORKSPACE).join(path)));
    (!decision.is_allowed()).then_some(decision.rule)
}

/// The rules and choices that changes are checked with.
pub(crate) struct CheckedRules<'a> {
    pub(crate) options: &'a ApplyOptions,
    /// The denials of the sandbox's policy and of the applying person's policy.
    pub(crate) denials: [&'a FileDenials; 2],
    pub(crate) rules: WriteRules<'a>,
}

pub(crate) struct ApplyCheck<'a> {
    workspace: &'a OwnedFd,
    /// Directories that will be made.
    made: HashSet<&'a Path>,
    /// Paths that will be removed from the host or replaced.
    removed: HashSet<&'a Path>,
}

impl<'a> ApplyCheck<'a> {
    /// Returns every reason against every change.
    pub(crate) fn refusals(
        saved: &SavedChanges,
        host: &'a HostView,
        changes: &[&'a SavedChange],
        checked: &CheckedRules<'a>,
    ) -> io::Result<Vec<RefusedPath>> {
        let workspace = host.workspace.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let classifier = Classifier::new(saved, host, changes, &checked.denials, checked.rules)?;
        let this = Self {
            workspace,
            made: paths(changes, makes_directory),
            removed: paths(changes, |change| change.kind == ChangeKind::Deleted || change.base.is_some()),
        };
        let mut refusals = Vec::new();
        for change in changes {
            let judged = classifier.judge(change)?;
            let mut reasons = judged.refusals;
            if reasons.is_empty()
                && let Some((kind, name)) = judged.runs
                && !checked.options.confirms(&change.path)
            {
                reasons.push(RefusalReason::NotConfirmed { kind, name });
            }
            if !reasons.contains(&RefusalReason::BadPath) {
                reasons.extend(this.conflict(change)?);
            }
            refusals.extend(reasons.into_iter().map(|reason| RefusedPath { path: change.path.clone(), reason }));
        }
        Ok(refusals)
    }

    fn conflict(&self, change: &SavedChange) -> io::Result<Option<RefusalReason>> {
        if change.conflict {
            let gone = change.kind == ChangeKind::Added;
            let difference = if gone { HostDifference::Gone } else { HostDifference::Changed };
            return Ok(Some(RefusalReason::Conflict(difference)));
        }
        let now = match self.on_host(&change.path)? {
            Ok(now) => now,
            Err(reason) => return Ok(Some(reason)),
        };
        if let Some(difference) = HostDifference::between(change.base.as_ref(), now.as_ref()) {
            return Ok(Some(RefusalReason::Conflict(difference)));
        }
        if removes_directory(change) && self.holds_more(&change.path)? {
            return Ok(Some(RefusalReason::Conflict(HostDifference::NotEmpty)));
        }
        Ok(None)
    }

    /// Returns the stamp of `path` on the host, or the reason why it cannot be read.
    fn on_host(&self, path: &Path) -> io::Result<Result<Option<FileStamp>, RefusalReason>> {
        let parents = || path.ancestors().skip(1);
        if parents().any(|parent| self.made.contains(parent)) {
            return Ok(Ok(None));
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        match beneath::directory(self.workspace, parent).and_then(|_| beneath::stamp(self.workspace, path)) {
            Ok(now) => Ok(Ok(now)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(Err(RefusalReason::Conflict(HostDifference::Gone))),
            Err(Errno::LOOP) => Ok(Err(RefusalReason::ThroughLink)),
            Err(Errno::XDEV) => Ok(Err(RefusalReason::OtherFileSystem)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a directory to be removed has entries that stay.
    fn holds_more(&self, path: &Path) -> io::Result<bool> {
        let directory = beneath::directory(self.workspace, path)?;
        for name in beneath::names(&directory)? {
            let inside: PathBuf = path.join(OsStr::from_bytes(name?.as_bytes()));
            if !self.removed.contains(inside.as_path()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn paths<'a>(changes: &[&'a SavedChange], wanted: impl Fn(&SavedChange) -> bool) -> HashSet<&'a Path> {
    changes.iter().filter(|change| wanted(change)).map(|change| change.path.as_path()).collect()
}
