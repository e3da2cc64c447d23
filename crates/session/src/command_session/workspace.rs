//! The workspace of a command session: its files, and its changes for review.
//!
//! Changes are saved outside the sandbox, so that they can be reviewed while the session runs and after its end.

use std::io;

use protocol::{EventBody, SessionId};
use sandbox::{OverlayLayers, SavedChanges, WorkspaceFiles};

use super::{ArtifactError, CommandSession, Registration, environment};
use crate::SessionError;
use crate::lifecycle::{Recorder, SessionHost, SessionPlan, summarize_changes};
use crate::storage::run_blocking;

impl CommandSession {
    /// Returns the files of the workspace.
    pub fn files(&self) -> &dyn WorkspaceFiles {
        self.sandbox.files()
    }

    /// Saves the changes of the workspace so far for review, while the session runs. Does nothing for a workspace without
    /// an overlay.
    pub async fn save_changes(&self) -> Result<(), SessionError> {
        let (Registration::Host { host, .. }, Some(layers)) = (&self.registration, self.sandbox.layers()) else {
            return Ok(());
        };
        let into = host.store.changes(&self.plan.id);
        run_blocking(move || SavedChanges::save(&layers, &into).map(drop).map_err(SessionError::Changes)).await
    }

    /// Restores the saved changes of the session `from` in this session's workspace. Fails when the workspace cannot be
    /// changed.
    pub async fn restore_changes_of(&self, from: &SessionId) -> Result<(), SessionError> {
        let Registration::Host { host, .. } = &self.registration else { return Ok(()) };
        let from = host.store.changes(from);
        let saved = match run_blocking(move || Ok(SavedChanges::open(&from))).await? {
            Ok(saved) => saved,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(SessionError::Changes(error)),
        };
        Ok(saved.restore(&*self.sandbox).await?)
    }

    /// Writes a file in the sandbox.
    pub async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), ArtifactError> {
        environment::write(&*self.sandbox, path, content).await
    }

    /// Reads a file from the sandbox.
    pub async fn read(&self, path: &str) -> Result<Vec<u8>, ArtifactError> {
        environment::read(&*self.sandbox, path).await
    }
}

/// Saves the changes of the workspace, and records their summary if there are any.
pub(super) async fn save_final_changes(
    host: &SessionHost,
    plan: &SessionPlan,
    recorder: &Recorder,
    layers: OverlayLayers,
) -> Result<(), SessionError> {
    let into = host.store.changes(&plan.id);
    let saved = move || SavedChanges::save_final(&layers, &into).map_err(SessionError::Changes);
    let changes = run_blocking(move || saved().map(|saved| summarize_changes(&saved))).await?;
    if !(changes.added.is_empty() && changes.modified.is_empty() && changes.deleted.is_empty()) {
        recorder.daemon(EventBody::WorkspaceChanged(changes))?;
    }
    Ok(())
}
