//! The workspace changes of a session: list, show, apply and discard them.
//!
//! They can be read at any time, as of the last turn. They are applied or discarded only after the session has ended,
//! because a workspace must not change while an agent works on it.

use std::io;
use std::path::Path;

use protocol::SessionId;
use sandbox::{
    ApplyError, ApplyOptions, ApplyReport, ChangeStat, SavedChanges, SetDifference, SetSummary, compare_sets,
    denying_rule, render_diff, render_stat,
};
use store::DataDir;

use crate::storage::run_blocking;
use crate::{ImportedSession, SessionError, Sessions};

/// The saved changes of a session.
#[derive(Debug)]
// Only one value exists at a time.
#[expect(clippy::large_enum_variant)]
pub enum SessionChanges {
    /// No changes were saved.
    None,
    /// Changes saved from a sandbox, which can be applied.
    Saved(SavedChanges),
    /// Changes listed in a bundle, which can only be read.
    Imported(ImportedSession),
}

impl SessionChanges {
    /// Opens the changes of the session `id`.
    pub fn open(directory: &DataDir, id: &SessionId) -> io::Result<Self> {
        if let Some(imported) = ImportedSession::find(directory, id) {
            return Ok(Self::Imported(imported));
        }
        match SavedChanges::open(&directory.change_set(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::None),
            opened => opened.map(Self::Saved),
        }
    }

    /// Opens the change set `number` of the session `id`, or the current one.
    pub fn open_set(directory: &DataDir, id: &SessionId, number: Option<u64>) -> Result<Self, SessionError> {
        let Some(number) = number else { return Self::open(directory, id).map_err(SessionError::Changes) };
        match SavedChanges::open_set(&directory.change_set(id), number) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(SessionError::ChangeSetNotFound { id: id.clone(), number })
            }
            opened => opened.map(Self::Saved).map_err(SessionError::Changes),
        }
    }

    /// Returns the set without its list of changes; `None` for changes of a bundle.
    pub fn summary(&self) -> io::Result<Option<SetSummary>> {
        match self {
            Self::None => Ok(Some(SetSummary::nothing())),
            Self::Saved(saved) => saved.summary().map(Some),
            Self::Imported(_) => Ok(None),
        }
    }

    /// Returns the digest of the set.
    fn digest(&self) -> base::Digest {
        match self {
            Self::Saved(saved) => saved.digest(),
            Self::None | Self::Imported(_) => SetSummary::nothing().digest,
        }
    }

    /// Returns whether changes were saved, even if there are none in them.
    pub fn exists(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns every changed path with its line counts.
    pub fn stat(&self) -> io::Result<Vec<ChangeStat>> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Saved(saved) => saved.stat(),
            Self::Imported(imported) => imported.stat(),
        }
    }

    /// Returns the changes as one patch that is safe to print.
    pub fn patch(&self) -> io::Result<String> {
        match self {
            Self::None => Ok(String::new()),
            Self::Saved(saved) => render_diff(saved, None),
            Self::Imported(imported) => imported.patch(),
        }
    }
}

/// Something that was read from a change set, with the set.
#[derive(Debug)]
pub struct ShownSet<T> {
    /// The set; `None` for changes of a bundle.
    pub set: Option<SetSummary>,
    /// The part that was read.
    pub shown: T,
}

/// The change set that a person reviewed and wants to apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewedSet {
    /// The number of an earlier set; without it, the digest must be that of the current set.
    pub number: Option<u64>,
    /// Digests that the caller accepts, as 64 hexadecimal digits. Nothing is applied without one.
    pub digests: Vec<String>,
}

impl Sessions {
    /// Returns every path of a change set with its line counts.
    pub async fn list_changes(
        &self,
        id: &SessionId,
        set: Option<u64>,
    ) -> Result<ShownSet<Vec<ChangeStat>>, SessionError> {
        self.read_changes(id, set, SessionChanges::stat).await
    }

    /// Returns a change set as text, one line for each file.
    pub async fn changes_as_lines(&self, id: &SessionId, set: Option<u64>) -> Result<ShownSet<String>, SessionError> {
        let ShownSet { set, shown } = self.list_changes(id, set).await?;
        Ok(ShownSet { set, shown: render_stat(&shown) })
    }

    /// Returns a change set as one patch.
    pub async fn changes_as_patch(&self, id: &SessionId, set: Option<u64>) -> Result<ShownSet<String>, SessionError> {
        self.read_changes(id, set, SessionChanges::patch).await
    }

    /// Returns the paths that the set `set` changes in another way than the set `against`.
    pub async fn compare_changes(
        &self,
        id: &SessionId,
        set: Option<u64>,
        against: u64,
    ) -> Result<ShownSet<Vec<SetDifference>>, SessionError> {
        self.get(id)?;
        let (store, id) = (self.host.store.clone(), id.clone());
        run_blocking(move || {
            let directory = store.directory();
            let other = SessionChanges::open_set(directory, &id, Some(against))?;
            let changes = SessionChanges::open_set(directory, &id, set)?;
            let (SessionChanges::Saved(changes), SessionChanges::Saved(other)) = (changes, other) else {
                return Err(SessionError::ChangeSetNotFound { id, number: against });
            };
            let summary = changes.summary().map_err(SessionError::Changes)?;
            Ok(ShownSet { set: Some(summary), shown: compare_sets(&changes, &other) })
        })
        .await
    }

    /// Returns the summaries of all kept change sets, oldest first.
    pub async fn change_sets(&self, id: &SessionId) -> Result<Vec<SetSummary>, SessionError> {
        self.get(id)?;
        let (store, id) = (self.host.store.clone(), id.clone());
        run_blocking(move || match SavedChanges::sets(&store.changes(&id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            sets => sets.map_err(SessionError::Changes),
        })
        .await
    }

    /// Applies the changes that `options` choose to the workspace on the host. Applies all of them or none.
    /// Fails when the session has not ended, when `reviewed` is not the set that would be applied, or on a conflict.
    pub async fn apply(
        &self,
        id: &SessionId,
        reviewed: ReviewedSet,
        options: ApplyOptions,
    ) -> Result<ShownSet<ApplyReport>, SessionError> {
        self.require_ended(id)?;
        let workspace = self.host.store.index.get(id)?.info.directory;
        let (sessions, id) = (self.clone(), id.clone());
        run_blocking(move || {
            if ImportedSession::find(sessions.directory(), &id).is_some() {
                let why = "the session was imported from a bundle, which does not contain the changed files";
                return Err(SessionError::NotSupported { field: "apply", why });
            }
            let changes = reviewed.open(sessions.directory(), &id)?;
            let SessionChanges::Saved(mut saved) = changes else {
                return Ok(ShownSet { set: Some(SetSummary::nothing()), shown: ApplyReport::default() });
            };
            let policy = sessions.host.policy_in(workspace.as_deref().map(Path::new))?;
            let workspace = saved.workspace().to_owned();
            let options = ApplyOptions { denials: policy.file_denials(), ..options };
            let shown = sandbox::apply(&mut saved, &workspace, &options, &|path| denying_rule(&policy, path))?;
            let set = saved.summary().map_err(SessionError::Changes)?;
            Ok(ShownSet { set: Some(set), shown })
        })
        .await
    }

    /// Deletes the saved changes of a session. Fails when the session has not ended, or when `reviewed` names a digest
    /// that is not the current set's.
    pub async fn discard(&self, id: &SessionId, reviewed: ReviewedSet) -> Result<(), SessionError> {
        self.require_ended(id)?;
        let (store, id) = (self.host.store.clone(), id.clone());
        run_blocking(move || {
            if !reviewed.digests.is_empty() {
                reviewed.open(store.directory(), &id)?;
            }
            if let Some(imported) = ImportedSession::find(store.directory(), &id) {
                return imported.discard().map_err(SessionError::Changes);
            }
            match sandbox::discard(&store.changes(&id)) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    Err(SessionError::Apply(ApplyError::Unfinished))
                }
                discarded => discarded.map_err(SessionError::Changes),
            }
        })
        .await
    }

    pub(super) async fn read_changes<T: Send + 'static>(
        &self,
        id: &SessionId,
        set: Option<u64>,
        read: impl FnOnce(&SessionChanges) -> io::Result<T> + Send + 'static,
    ) -> Result<ShownSet<T>, SessionError> {
        self.get(id)?;
        let (store, id) = (self.host.store.clone(), id.clone());
        run_blocking(move || {
            let changes = SessionChanges::open_set(store.directory(), &id, set)?;
            let read = || Ok(ShownSet { set: changes.summary()?, shown: read(&changes)? });
            read().map_err(SessionError::Changes)
        })
        .await
    }

    /// Fails for a session whose agent may still write to its workspace.
    pub(super) fn require_ended(&self, id: &SessionId) -> Result<(), SessionError> {
        if self.get(id)?.ended { Ok(()) } else { Err(SessionError::NotEnded(id.clone())) }
    }
}

impl ReviewedSet {
    /// Opens the set. Fails unless a digest is given and is that of the set.
    pub(super) fn open(&self, directory: &DataDir, id: &SessionId) -> Result<SessionChanges, SessionError> {
        if self.digests.is_empty() {
            return Err(SessionError::DigestRequired(id.clone()));
        }
        let changes = SessionChanges::open_set(directory, id, self.number)?;
        let digest = changes.digest().to_string();
        if self.digests.contains(&digest) {
            return Ok(changes);
        }
        Err(SessionError::ChangeSetChanged { id: id.clone(), digest })
    }
}
