//! What a session changed in its workspace, and what becomes of it.
//!
//! They can be looked at at any time, as of the last turn. They are applied or discarded when the session has ended:
//! a workspace must not change below an agent that works on it.

use std::io;
use std::path::{Path, PathBuf};

use protocol::SessionId;
use sandbox::{ApplyError, ApplyReport, ChangeStat, SavedChanges, denying_rule, render_diff, render_stat};
use store::DataDir;

use crate::shelf::blocking;
use crate::{ImportedSession, SessionError, Sessions};

/// What a session changed, wherever that is kept.
#[derive(Debug)]
pub enum SessionChanges {
    /// Nothing was.
    None,
    /// By its sandbox, and it can be applied.
    Saved(SavedChanges),
    /// By its bundle, and it can be looked at.
    Told(ImportedSession),
}

impl SessionChanges {
    /// What the session `id` changed.
    pub fn open(directory: &DataDir, id: &SessionId) -> io::Result<Self> {
        if let Some(imported) = ImportedSession::find(directory, id) {
            return Ok(Self::Told(imported));
        }
        match SavedChanges::open(&directory.changes(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::None),
            opened => opened.map(Self::Saved),
        }
    }

    /// Whether something was kept, be it that nothing changed.
    pub fn is_there(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Every path, with how much of it changed.
    pub fn stat(&self) -> io::Result<Vec<ChangeStat>> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Saved(saved) => saved.stat(),
            Self::Told(imported) => imported.stat(),
        }
    }

    /// The same as one patch, safe to print.
    pub fn patch(&self) -> io::Result<String> {
        match self {
            Self::None => Ok(String::new()),
            Self::Saved(saved) => render_diff(saved, None),
            Self::Told(imported) => imported.patch(),
        }
    }
}

impl Sessions {
    /// Every path a session changed, with how much of it.
    pub async fn list_changes(&self, id: &SessionId) -> Result<Vec<ChangeStat>, SessionError> {
        self.look(id, |changes| changes.stat()).await
    }

    /// The same, a line a file.
    pub async fn changes_as_lines(&self, id: &SessionId) -> Result<String, SessionError> {
        Ok(render_stat(&self.list_changes(id).await?))
    }

    /// The same, as one patch.
    pub async fn changes_as_patch(&self, id: &SessionId) -> Result<String, SessionError> {
        self.look(id, |changes| changes.patch()).await
    }

    /// Brings what a session changed to its workspace: what is at or below `paths`, or all. All of that or nothing.
    pub async fn apply(&self, id: &SessionId, paths: Vec<PathBuf>) -> Result<ApplyReport, SessionError> {
        self.at_rest(id)?;
        let workspace = self.host.shelf.index.get(id)?.info.directory;
        let (sessions, id) = (self.clone(), id.clone());
        blocking(move || {
            let mut saved = match SessionChanges::open(sessions.directory(), &id).map_err(SessionError::Changes)? {
                SessionChanges::None => return Ok(ApplyReport { changes: Vec::new() }),
                SessionChanges::Saved(saved) => saved,
                SessionChanges::Told(_) => {
                    let why = "the session came from a bundle, and its files are where they were made";
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

    /// Forgets what a session changed.
    pub async fn discard(&self, id: &SessionId) -> Result<(), SessionError> {
        self.at_rest(id)?;
        let (kept, id) = (self.host.shelf.clone(), id.clone());
        blocking(move || {
            if let Some(imported) = ImportedSession::find(kept.directory(), &id) {
                return imported.discard().map_err(SessionError::Changes);
            }
            match sandbox::discard(&kept.changes(&id)) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    Err(SessionError::Apply(ApplyError::Unfinished))
                }
                discarded => discarded.map_err(SessionError::Changes),
            }
        })
        .await
    }

    async fn look<T: Send + 'static>(
        &self,
        id: &SessionId,
        see: impl FnOnce(SessionChanges) -> io::Result<T> + Send + 'static,
    ) -> Result<T, SessionError> {
        self.get(id)?;
        let (kept, id) = (self.host.shelf.clone(), id.clone());
        blocking(move || SessionChanges::open(kept.directory(), &id).and_then(see).map_err(SessionError::Changes)).await
    }

    /// Fails for a session whose agent may still write.
    fn at_rest(&self, id: &SessionId) -> Result<(), SessionError> {
        if self.get(id)?.ended { Ok(()) } else { Err(SessionError::StillOpen(id.clone())) }
    }
}
