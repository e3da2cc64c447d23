//! What a session changed in its workspace, and what becomes of it.
//!
//! They can be looked at at any time, as of the last turn. They are applied or discarded when the session has ended:
//! a workspace must not change below an agent that works on it.

use std::path::{Path, PathBuf};

use protocol::SessionId;
use sandbox::{Applied, ApplyError, ChangeStat, SavedChanges, denying, render_diff, render_stat};

use crate::shelf::blocking;
use crate::{SessionError, Sessions};

impl Sessions {
    /// Every path a session changed, with how much of it.
    pub async fn list_changes(&self, id: &SessionId) -> Result<Vec<ChangeStat>, SessionError> {
        self.look(id, |saved| saved.map_or(Ok(Vec::new()), |saved| saved.stat())).await
    }

    /// The same, a line a file.
    pub async fn changes_as_lines(&self, id: &SessionId) -> Result<String, SessionError> {
        Ok(render_stat(&self.list_changes(id).await?))
    }

    /// The same, as one patch.
    pub async fn changes_as_patch(&self, id: &SessionId) -> Result<String, SessionError> {
        self.look(id, |saved| saved.map_or(Ok(String::new()), |saved| render_diff(&saved, None))).await
    }

    /// Brings what a session changed to its workspace: what is at or below `paths`, or all. All of that or nothing.
    pub async fn apply(&self, id: &SessionId, paths: Vec<PathBuf>) -> Result<Applied, SessionError> {
        self.at_rest(id)?;
        let workspace = self.host.shelf.index.get(id)?.info.directory;
        let (directory, policy) =
            (self.host.shelf.changes(id), self.host.policy_in(workspace.as_deref().map(Path::new))?);
        blocking(move || {
            let Some(mut saved) = open(&directory)? else { return Ok(Applied { changes: Vec::new() }) };
            let workspace = saved.workspace().to_owned();
            let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
            let chosen = (!paths.is_empty()).then_some(&paths[..]);
            Ok(sandbox::apply(&mut saved, &workspace, chosen, &|path| denying(&policy, path))?)
        })
        .await
    }

    /// Forgets what a session changed.
    pub async fn discard(&self, id: &SessionId) -> Result<(), SessionError> {
        self.at_rest(id)?;
        let directory = self.host.shelf.changes(id);
        blocking(move || match sandbox::discard(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                Err(SessionError::Apply(ApplyError::Unfinished))
            }
            discarded => discarded.map_err(SessionError::Changes),
        })
        .await
    }

    async fn look<T: Send + 'static>(
        &self,
        id: &SessionId,
        see: impl FnOnce(Option<SavedChanges>) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, SessionError> {
        self.get(id)?;
        let directory = self.host.shelf.changes(id);
        blocking(move || see(open(&directory)?).map_err(SessionError::Changes)).await
    }

    /// Fails for a session whose agent may still write.
    fn at_rest(&self, id: &SessionId) -> Result<(), SessionError> {
        if self.get(id)?.ended { Ok(()) } else { Err(SessionError::StillOpen(id.clone())) }
    }
}

/// What was saved; `None` when nothing was.
fn open(directory: &Path) -> Result<Option<SavedChanges>, SessionError> {
    match SavedChanges::open(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).map_err(SessionError::Changes),
    }
}
