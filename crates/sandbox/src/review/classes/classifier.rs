//! The classifier: judges each change by its names, its links and the repository it would be part of.

use std::collections::HashSet;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use policy::FileDenials;
use rustix::fs::FileType;

use super::folded_name::folded;
use super::host_view::HostView;
use super::link_map::{LinkEnd, LinkMap, leaves};
use super::name_rules::{NameRules, NameVerdict, WriteRules};
use super::{PathClass, RunKind, repository, submodules};
use crate::review::content_store::ContentStore;
use crate::review::git_directory::is_inside_git_directory;
use crate::review::{RefusalReason, SavedChange, SavedChanges, SavedEntry};

/// Judges changes that are applied together.
pub(crate) struct Classifier<'a> {
    host: &'a HostView,
    rules: NameRules<'a>,
    links: LinkMap,
    contents: ContentStore,
    /// Changed paths that will exist, with the last name folded.
    remaining: HashSet<PathBuf>,
    /// Paths that will be removed from the host or replaced.
    removed: HashSet<&'a Path>,
}

/// The reasons about one change.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    /// Reasons against the change, whatever a person confirms.
    pub(crate) refusals: Vec<RefusalReason>,
    /// Why the change must be confirmed, with the other name that a link gives it.
    pub(crate) runs: Option<(RunKind, Option<PathBuf>)>,
}

impl Judgement {
    pub(crate) fn class(self) -> PathClass {
        match (self.refusals.into_iter().next(), self.runs) {
            (Some(reason), _) => PathClass::Refused { reason },
            (None, Some((kind, _))) => PathClass::RunsByItself { kind },
            (None, None) => PathClass::Plain,
        }
    }
}

/// Returns whether a change is inside a git directory of the host. Commits leave a session through git itself, never as files.
pub(crate) fn is_left_to_git(change: &SavedChange, host: &HostView) -> bool {
    let Some(git) = repository::git_part(&change.path) else { return false };
    let is_own = git == Path::new(".git");
    if git == change.path {
        // A `.git` that becomes a file or link is refused, and one that was a file may be deleted.
        let is_directory = matches!(change.entry, Some(SavedEntry::Directory { .. }))
            || (change.entry.is_none() && change.base.is_some_and(|base| base.is_directory()));
        return is_directory && (is_own || host.has_directory(&git));
    }
    is_own || host.has_directory(&git)
}

impl<'a> Classifier<'a> {
    /// Returns the classifier of `changes`, which are applied together.
    pub(crate) fn new(
        saved: &SavedChanges,
        host: &'a HostView,
        changes: &[&'a SavedChange],
        denials: &[&'a FileDenials],
        rules: WriteRules<'a>,
    ) -> io::Result<Self> {
        let rules = NameRules::new(denials, rules, &host.settings)?;
        let mut links = LinkMap::new(&host.root, &host.links, changes);
        links.find_names(&rules);
        let remaining =
            changes.iter().filter(|change| change.entry.is_some()).map(|change| with_folded_name(&change.path));
        let removed = changes.iter().filter(|change| change.base.is_some()).map(|change| change.path.as_path());
        let contents = ContentStore::of(saved.directory());
        Ok(Self { host, rules, links, contents, remaining: remaining.collect(), removed: removed.collect() })
    }

    /// Returns the reasons about one of the changes.
    pub(crate) fn judge(&self, change: &SavedChange) -> io::Result<Judgement> {
        if !is_inside(&change.path) {
            return Ok(Judgement { refusals: vec![RefusalReason::BadPath], runs: None });
        }
        let mut judgement = Judgement::default();
        judgement.refusals.extend(repository::git_refusal(change, self.host));
        if judgement.refusals.is_empty() {
            self.judge_names(change, &mut judgement);
        }
        judgement.refusals.extend(unfit(change));
        if let Some(SavedEntry::Symlink { target }) = &change.entry {
            judgement.refusals.extend(self.link_refusal(&change.path, target));
        }
        let exists = |directory: &Path, name: &str| self.will_exist(directory, name);
        judgement.refusals.extend(repository::bare_repository(change, &exists));
        judgement.refusals.extend(self.submodule_refusal(change)?);
        Ok(judgement)
    }

    /// Judges the path, and every name that links give it.
    fn judge_names(&self, change: &SavedChange, judgement: &mut Judgement) {
        let path = &change.path;
        let is_directory = matches!(change.entry, Some(SavedEntry::Directory { .. }))
            || (change.entry.is_none() && change.base.is_some_and(|base| base.is_directory()));
        add(judgement, self.rules.named(path), None, is_directory);
        if matches!(change.entry, Some(SavedEntry::Symlink { .. })) && judgement.refusals.is_empty() {
            self.add_names_below(judgement, path);
        }
        if judgement.refusals.is_empty() {
            for (name, verdict) in self.links.other_names(path, &self.rules) {
                add(judgement, verdict, Some(&name), is_directory);
            }
            judgement.refusals.truncate(1);
        }
        if self.links.has_too_many_names(path) {
            judgement.refusals.push(RefusalReason::TooManyNames);
        }
    }

    /// Judges the names that a link gives to everything below its target.
    fn add_names_below(&self, judgement: &mut Judgement, path: &Path) {
        let verdict = self.rules.above(path);
        if let Some(rule) = verdict.denial() {
            judgement.refusals.push(RefusalReason::LinkNamesDenied { rule: rule.clone() });
        } else {
            add(judgement, verdict, None, false);
        }
    }

    /// Returns the reason against a link because of the path that it leads to.
    fn link_refusal(&self, link: &Path, target: &Path) -> Option<RefusalReason> {
        let target = target.to_owned();
        if leaves(link, &target) {
            return Some(RefusalReason::LinkLeaves { target });
        }
        match self.links.end_of(link) {
            LinkEnd::Outside => Some(RefusalReason::LinkLeaves { target }),
            LinkEnd::Inside(end) if is_inside_git_directory(&folded(&end)) => {
                Some(RefusalReason::LinkIntoGit { target })
            }
            LinkEnd::Inside(_) | LinkEnd::Nowhere => None,
        }
    }

    fn submodule_refusal(&self, change: &SavedChange) -> io::Result<Option<RefusalReason>> {
        let is_list = change.path.file_name().is_some_and(|name| folded(Path::new(name)) == Path::new(".gitmodules"));
        let why = match &change.entry {
            _ if !is_list => None,
            Some(SavedEntry::Regular { sha256, size, .. }) if *size <= submodules::MAX_BYTES => {
                let mut content = Vec::new();
                self.contents.open(sha256)?.take(submodules::MAX_BYTES).read_to_end(&mut content)?;
                submodules::trick(&content)
            }
            Some(SavedEntry::Regular { .. }) => Some("it is too large"),
            Some(SavedEntry::Symlink { .. }) => Some("it is a link"),
            _ => None,
        };
        Ok(why.map(|why| RefusalReason::Submodules { why: why.to_owned() }))
    }

    /// Returns whether an entry with this folded name will exist in `directory` after the apply.
    fn will_exist(&self, directory: &Path, name: &str) -> bool {
        if self.remaining.contains(&directory.join(name)) {
            return true;
        }
        let spellings = [name.to_owned(), name.to_uppercase()];
        spellings
            .iter()
            .map(|name| directory.join(name))
            .any(|path| !self.removed.contains(path.as_path()) && self.host.has(&path))
    }
}

/// Adds a verdict about one name to the judgement. A directory runs nothing itself.
fn add(judgement: &mut Judgement, verdict: NameVerdict, name: Option<&Path>, is_directory: bool) {
    let (other, rule) = (name.map(Path::to_owned), verdict.denial().cloned());
    let runs = verdict.runs.filter(|_| !is_directory).map(|kind| (kind, other.clone()));
    let reason = match (verdict.host_setting, rule, name) {
        (Some(key), _, _) => Some(RefusalReason::NamedByGit { key, name: other }),
        (None, Some(rule), None) => Some(RefusalReason::Denied { rule }),
        (None, Some(rule), Some(name)) => Some(RefusalReason::DeniedThroughLink { name: name.to_owned(), rule }),
        (None, None, Some(name)) if verdict.inside_git => {
            Some(RefusalReason::InsideGitDirectory { directory: name.to_owned() })
        }
        _ => None,
    };
    judgement.refusals.extend(reason);
    if judgement.runs.is_none() {
        judgement.runs = runs;
    }
}

fn with_folded_name(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| folded(Path::new(name))).unwrap_or_default();
    path.with_file_name(name)
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
        _ => None,
    }
}

/// Returns whether the path is below the workspace, judged by its text.
fn is_inside(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.is_empty() && !bytes.contains(&0) && path.components().all(|part| matches!(part, Component::Normal(_)))
}
