//! The checks of an apply. Every change is checked before any is applied.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use base::WORKSPACE;
use policy::{Action, EffectivePolicy, RuleRef};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::aliases::{Aliases, leaves};
use super::refusal::{HostDifference, RefusalReason, RefusedPath};
use super::repository;
use super::select::{makes_directory, removes_directory};
use crate::beneath;
use crate::overlay::ChangeKind;
use crate::review::{FileStamp, SavedChange, SavedEntry};
use crate::tree::{VisitNext, visit};

/// Returns the rule that denies writing a path, which is relative to the workspace.
pub type WriteRules<'a> = &'a dyn Fn(&Path) -> Option<RuleRef>;

/// Returns the rule of `policy` that denies writing `path`, which is relative to the workspace; `None` when allowed.
pub fn denying_rule(policy: &EffectivePolicy, path: &Path) -> Option<RuleRef> {
    let decision = policy.decide(&Action::Write(Path::new(WORKSPACE).join(path)));
    (!decision.is_allowed()).then_some(decision.rule)
}

/// Returns every reason against every change.
pub(crate) fn check(
    workspace: &OwnedFd,
    root: &Path,
    changes: &[SavedChange],
    rules: WriteRules<'_>,
) -> io::Result<Vec<RefusedPath>> {
    let aliases = Aliases::read(workspace, root, changes)?;
    let check = ApplyCheck {
        workspace,
        rules,
        aliases: &aliases,
        remaining: paths(changes, |change| change.entry.is_some()),
        made: paths(changes, makes_directory),
        removed: paths(changes, |change| change.kind == ChangeKind::Deleted || change.base.is_some()),
    };
    let mut refusals = Vec::new();
    for change in changes {
        let reasons = check.reasons(change)?;
        refusals.extend(reasons.into_iter().map(|reason| RefusedPath { path: change.path.clone(), reason }));
    }
    refusals.extend(check.check_new_names()?);
    Ok(refusals)
}

fn paths(changes: &[SavedChange], wanted: impl Fn(&SavedChange) -> bool) -> HashSet<&Path> {
    changes.iter().filter(|change| wanted(change)).map(|change| change.path.as_path()).collect()
}

struct ApplyCheck<'a> {
    workspace: &'a OwnedFd,
    rules: WriteRules<'a>,
    aliases: &'a Aliases,
    /// Changed paths that will exist.
    remaining: HashSet<&'a Path>,
    /// Directories that will be made.
    made: HashSet<&'a Path>,
    /// Paths that will be removed from the host or replaced.
    removed: HashSet<&'a Path>,
}

impl ApplyCheck<'_> {
    fn reasons(&self, change: &SavedChange) -> io::Result<Vec<RefusalReason>> {
        if !is_inside(&change.path) {
            return Ok(vec![RefusalReason::BadPath]);
        }
        let mut reasons = Vec::new();
        reasons.extend(self.denied(&change.path));
        reasons.extend(unfit(change));
        reasons.extend(repository::unfit(change, &|path| self.will_exist(path)));
        reasons.extend(self.conflict(change)?);
        Ok(reasons)
    }

    fn denied(&self, path: &Path) -> Option<RefusalReason> {
        if let Some(rule) = (self.rules)(path) {
            return Some(RefusalReason::Denied { rule });
        }
        self.aliases
            .names(path)
            .into_iter()
            .find_map(|name| (self.rules)(&name).map(|rule| RefusalReason::DeniedThroughLink { name, rule }))
    }

    /// Checks files of the host that get new names through added links.
    fn check_new_names(&self) -> io::Result<Vec<RefusedPath>> {
        let mut refusals = Vec::new();
        for target in &self.aliases.new_targets {
            visit(self.workspace, target, &mut |path, _| {
                if !self.removed.contains(path)
                    && let Some(reason @ RefusalReason::DeniedThroughLink { .. }) = self.denied(path)
                {
                    refusals.push(RefusedPath { path: path.to_owned(), reason });
                }
                Ok(VisitNext::Enter)
            })?;
        }
        Ok(refusals)
    }

    /// Returns whether `path` will exist after the apply. A path that cannot be read counts as missing; its change fails.
    fn will_exist(&self, path: &Path) -> bool {
        let on_host = || beneath::stamp(self.workspace, path).is_ok_and(|stamp| stamp.is_some());
        self.remaining.contains(path) || (!self.removed.contains(path) && on_host())
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

/// Returns the reason against a change that no policy can allow.
fn unfit(change: &SavedChange) -> Option<RefusalReason> {
    let kinds = [FileType::RegularFile, FileType::Directory, FileType::Symlink];
    if change.base.is_some_and(|base| !kinds.contains(&base.kind())) {
        return Some(RefusalReason::SpecialFile);
    }
    match change.entry.as_ref()? {
        SavedEntry::Special { .. } => Some(RefusalReason::SpecialFile),
        SavedEntry::Unsaved { reason } => Some(RefusalReason::NotKept { why: *reason }),
        SavedEntry::Regular { mode, .. } if mode & 0o7000 != 0 => Some(RefusalReason::SpecialMode { mode: *mode }),
        SavedEntry::Symlink { target } if leaves(&change.path, target) => {
            Some(RefusalReason::LinkLeaves { target: target.clone() })
        }
        _ => None,
    }
}

/// Returns whether the path is below the workspace, judged by its text.
fn is_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_))) && path.components().next().is_some()
}
