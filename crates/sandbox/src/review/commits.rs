//! Commits of a session: imports them into the host's repository, shows them and applies them.
//!
//! The files of `.git` are never applied. Commits leave a session through `git fetch`: from a bare repository that we make
//! of its saved objects (`bare`), with every object checked and without hooks, to `refs/viv/<session>/` (`import`).
//! They are then read from the host's objects alone (`list`), so that the shown commits are the imported ones.

mod bare;
mod commit;
mod error;
mod git;
mod host_repository;
mod identity;
mod import;
mod land;
mod landed_files;
mod list;
mod path_check;
mod ref_name;
mod render;
mod repository_start;
mod session_refs;

use self::bare::BareRepository;
use self::host_repository::HostRepository;
use self::list::CommitReader;
use self::session_refs::SessionReferences;
use crate::review::SavedChanges;

pub use commit::{Commit, CommitChange, CommitFile, ImportedTip, SessionCommits, TipRelation};
pub use error::CommitsError;
pub use identity::GitIdentity;
pub use import::remove_imported_commits;
pub use land::{AppliedCommits, apply_commits};
pub use render::{commit_patch, render_commits};
pub use repository_start::RepositoryStart;
pub use session_refs::{CommitTip, SkippedReference, commit_tips};

/// The most commits that are listed.
const MAX_LISTED: usize = 2000;

/// Imports the commits of a session into the host's repository, below `refs/viv/<session>/`, and returns them. Without new
/// commits nothing is written. Fails closed when git finds an invalid object.
pub fn import_commits(saved: &SavedChanges, session: &str) -> Result<SessionCommits, CommitsError> {
    let references = SessionReferences::read(saved)?;
    if references.tips.is_empty() {
        return Ok(SessionCommits { skipped: references.skipped, ..SessionCommits::default() });
    }
    let host = HostRepository::open(saved.workspace())?;
    import::import(saved, session, &host, &references)?;
    let view = BareRepository::view(saved, &host)?;
    CommitReview { saved, session, host: &host, reader: CommitReader { view: &view } }.list(references)
}

/// A review of imported commits.
struct CommitReview<'a> {
    saved: &'a SavedChanges,
    session: &'a str,
    host: &'a HostRepository,
    reader: CommitReader<'a>,
}

impl CommitReview<'_> {
    fn list(&self, references: SessionReferences) -> Result<SessionCommits, CommitsError> {
        let now = RepositoryStart::read(self.saved.workspace())?;
        let start = self.saved.manifest.repository.as_ref().unwrap_or(&now);
        let identity = GitIdentity::of_repository(&self.host.workspace, self.session);
        let mut found = SessionCommits { skipped: references.skipped, ..SessionCommits::default() };
        for tip in references.tips {
            let (tip, ids) = self.tip(tip, start, &now, MAX_LISTED.saturating_sub(found.commits.len()))?;
            found.omitted += tip.commit_count - ids.len();
            let mut commits = self.reader.commits(&ids, &tip.tip.reference)?;
            for commit in &mut commits {
                commit.other_identity = !identity.is_of(commit);
            }
            found.commits.extend(commits);
            found.tips.push(tip);
        }
        Ok(found)
    }

    /// Returns one tip, and the ids of its commits that are listed.
    fn tip(
        &self,
        tip: CommitTip,
        start: &RepositoryStart,
        now: &RepositoryStart,
        most: usize,
    ) -> Result<(ImportedTip, Vec<String>), CommitsError> {
        let before = tip.branch().and_then(|branch| start.branch(branch));
        let before = before.map(|id| Ok::<_, CommitsError>(self.reader.has(id)?.then_some(id))).transpose()?.flatten();
        let base = match (before, start.head_commit()) {
            (Some(before), _) => Some(before.to_owned()),
            (None, Some(head)) if self.reader.has(head)? => self.reader.merge_base(head, &tip.id)?,
            _ => None,
        };
        let landed = tip.branch().and_then(|branch| now.branch(branch)) == Some(&tip.id);
        let relation = match (landed, before, tip.branch()) {
            (true, ..) => TipRelation::Landed,
            (_, Some(before), _) if self.reader.is_ancestor(before, &tip.id)? => TipRelation::Forward,
            (_, Some(_), _) => TipRelation::Rewritten,
            (_, None, Some(_)) => TipRelation::New,
            (_, None, None) => TipRelation::Detached,
        };
        let base = base.unwrap_or_else(|| self.host.format.empty_tree().to_owned());
        let without = before.map_or_else(|| start.commits(), |before| vec![before]);
        let (ids, commit_count) = match relation {
            TipRelation::Landed => (Vec::new(), 0),
            _ => self.reader.ids(&tip.id, &without, most)?,
        };
        let mut changes = Vec::new();
        if relation != TipRelation::Landed {
            changes = self.reader.changes(&base, &tip.id)?;
            path_check::classify(self.saved, &self.reader, &mut changes)?;
        }
        let imported_as = format!("{}{}", import::namespace(self.session), tip.reference);
        let start = before.map(str::to_owned);
        Ok((ImportedTip { tip, imported_as, start, relation, commit_count, changes, base }, ids))
    }
}
