//! The workspace changes of a session: list, show, apply and discard them.
//!
//! They can be read at any time, as of the last turn. They are applied or discarded only after the session has ended,
//! because a workspace must not change while an agent works on it.

use std::io;
use std::path::{Path, PathBuf};

use protocol::SessionId;
use sandbox::{ApplyError, ApplyReport, ChangeStat, SavedChanges, denying_rule, render_diff, render_stat};
use store::DataDir;

use crate::storage::run_blocking;
use crate::{ImportedSession, SessionError, Sessions};

/// The saved changes of a session.
#[derive(Debug)]
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

impl Sessions {
    /// Returns every path that a session changed, with its line counts.
    pub async fn list_changes(&self, id: &SessionId) -> Result<Vec<ChangeStat>, SessionError> {
        self.read_changes(id, |changes| changes.stat()).await
    }

    /// Returns the changes as text, one line for each file.
    pub async fn changes_as_lines(&self, id: &SessionId) -> Result<String, SessionError> {
        Ok(render_stat(&self.list_changes(id).await?))
    }

    /// Returns the changes as one patch.
    pub async fn changes_as_patch(&self, id: &SessionId) -> Result<String, SessionError> {
        self.read_changes(id, |changes| changes.patch()).await
    }

    /// Applies the changes at or below `paths`, or all changes, to the workspace on the host. Applies all of them or
    /// none. Fails when the session has not ended, or on a conflict.
    pub async fn apply(&self, id: &SessionId, paths: Vec<PathBuf>) -> Result<ApplyReport, SessionError> {
        self.require_ended(id)?;
        let workspace = self.host.store.index.get(id)?.info.directory;
        let (sessions, id) = (self.clone(), id.clone());
        run_blocking(move || {
            let mut saved = match SessionChanges::open(sessions.directory(), &id).map_err(SessionError::Changes)? {
                SessionChanges::None => return Ok(ApplyReport { changes: Vec::new() }),
                SessionChanges::Saved(saved) => saved,
                SessionChanges::Imported(_) => {
                    let why = "the session was imported from a bundle, which does not contain the changed files";
                    return Err(SessionError::NotSupported { field: "apply", why });
                }
            };
            let policy = sessions.host.policy_in(workspace.as_deref().map(Path::new))?;
            let workspace = saved.workspace().to_owned();
            let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
            let chosen = (!paths.is_empty()).then_some(&paths[..]);
            Ok(sandbox::apply(&mut saved, &workspace, chosen, &|path| denying_rule(&policy, path))?)
        })
        .await
    }

    /// Deletes the saved changes of a session. Fails when the session has not ended.
    pub async fn discard(&self, id: &SessionId) -> Result<(), SessionError> {
        self.require_ended(id)?;
        let (store, id) = (self.host.store.clone(), id.clone());
        run_blocking(move || {
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

    async fn read_changes<T: Send + 'static>(
        &self,
        id: &SessionId,
        read: impl FnOnce(SessionChanges) -> io::Result<T> + Send + 'static,
    ) -> Result<T, SessionError> {
        self.get(id)?;
        let (store, id) = (self.host.store.clone(), id.clone());
        run_blocking(move || SessionChanges::open(store.directory(), &id).and_then(read).map_err(SessionError::Changes))
            .await
    }

    /// Fails for a session whose agent may still write to its workspace.
    fn require_ended(&self, id: &SessionId) -> Result<(), SessionError> {
        if self.get(id)?.ended { Ok(()) } else { Err(SessionError::NotEnded(id.clone())) }
    }
}
